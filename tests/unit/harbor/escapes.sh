ls {here} && echo sees the host
echo x > {secret} && echo writes to the host
cat /etc/shadow && echo reads passwords
touch /usr/x || rm /usr/bin/env || mv /usr /usr2 && echo changes programs
rm -rf /bin /lib64; mv /etc /etc2 && echo moves etc
echo /app/x.so > /etc/ld.so.preload && echo preloads
mount -t tmpfs x /mnt && echo mounts
unshare -Ur true && echo makes namespaces
chroot /app /bin/true && echo changes root
mknod disk b 254 0 && echo makes devices
cp /bin/sh suid && chmod u+s suid && ./suid -c 'echo x > /proc/sys/vm/overcommit_memory' && echo rules
head -c 1 /proc/1/mem && echo reads its keeper
kill -9 1; kill -0 1 || echo ends its keeper
ls /proc/1/root/ && echo enters its keeper
grep -r {here} /proc/1/cmdline && echo sees paths
python3 -c 'import ctypes; exit(ctypes.CDLL(None).ptrace(0, 0, 0, 0) < 0)' && echo traces
python3 -c 'import socket; socket.socket(40, 1)' && echo talks to the hypervisor
python3 -c 'import socket; socket.create_connection(("{address}", {port}), 2)' && echo talks to the host
grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status | grep -v 0000000000000000 && echo has rights
true
