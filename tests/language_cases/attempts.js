const fs = require('fs'), net = require('net'), cp = require('child_process');
const attempt = (what, f) => {
    try { const r = f(); if (r && r.error) throw r.error; console.log(what); } catch {}
};
attempt('processes', () => cp.spawnSync('/bin/sh', ['-c', 'true']));
attempt('passwords', () => fs.readFileSync('/etc/passwd'));
attempt('writing', () => fs.writeFileSync('/usr/lib/.written', ''));
attempt('attributes', () => fs.chmodSync('/usr/lib', 0o755));
attempt('signals', () => process.kill(process.ppid || 2, 0));
const others = () => fs.readdirSync('/proc').filter(name => /^[0-9]+$/.test(name) && name != process.pid);
attempt('host processes', () => { if (!others().length) throw 0; });
for (const name in process.env) if (name.includes('CANARY')) console.log(name);
net.connect(9, '127.0.0.1').on('error', e => console.log(e.code));
