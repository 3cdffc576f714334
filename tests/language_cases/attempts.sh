exec 2> /dev/null
(: > /dev/tcp/127.0.0.1/9) && echo network
(: > /usr/lib/.written) && echo writing
chmod 755 /usr/lib && echo attributes
kill -0 2 && echo signals
cat /etc/passwd /etc/shadow /proc/sys/kernel/hostname /proc/kallsyms
for folder in /proc/[0-9]*; do [[ $(< $folder/comm) =~ ^(bash|main.sh)$ ]] || cat $folder/comm; done
for name in python3 perl mount unshare nc curl gcc; do command -v $name; done
(ulimit -v unlimited) && echo limits
env | grep CANARY
true
