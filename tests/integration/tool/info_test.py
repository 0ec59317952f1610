# SPDX-License-Identifier: Apache-2.0
"""`runnel info` prints the devices, or in one line why there is none."""
import tool

done = tool.run('info')
text = done.stdout.decode()
tool.expect(done.returncode == 0 and text.startswith('runnel '), 'info works')

if tool.has_device():
    for word in ('backend', 'device 0', 'memory', 'priorities', 'copy engines', 'hardware queues', 'can'):
        tool.expect(word in text, f'info says {word!r}')
else:
    tool.expect('none: ' in text, 'info says why there is no device')

if 'backend            host' not in text and tool.has_device():
    for word in ('capability', 'uuid', 'PCI bus id', 'a waiting host'):
        tool.expect(word in text, f'info says {word!r}')

if 'backend            host' in text:
    for count in (3, 64):
        text = tool.run('info', environment={'RUNNEL_HOST_DEVICES': str(count)}).stdout.decode()
        tool.expect(text.count('\ndevice ') == count, 'info lists every device')
    for many in ('65', '-1', '2K', 'x', '99999999999999'):
        done = tool.run('info', environment={'RUNNEL_HOST_DEVICES': many})
        tool.expect(done.stdout.count(b'\ndevice ') == 1 and f'RUNNEL_HOST_DEVICES={many} is not understood'.encode() in done.stderr,
                    f'{many} devices: {done.stderr.decode().strip()}')
    for bytes in ('0', '0G', '-1', 'x', '5Mb', '20000000000G'):
        done = tool.run('info', environment={'RUNNEL_HOST_MEMORY': bytes})
        tool.expect(b'\ndevice 0' in done.stdout and f'RUNNEL_HOST_MEMORY={bytes} is not understood'.encode() in done.stderr,
                    f'{bytes} bytes of memory: {done.stderr.decode().strip()}')
    done = tool.run('info', environment={'RUNNEL_HOST_DEVICES': '0'})
    tool.expect(done.returncode == 0 and b'none: ' in done.stdout, 'info succeeds without a device')
    why = tool.run('info', '--why', environment={'RUNNEL_HOST_DEVICES': '0'}).stdout
    tool.expect(why.count(b'\n') == 1, '--why explains it in one line')
    done = tool.run('overlap', '--table', 'upper', '/etc/passwd', '/dev/null', environment={'RUNNEL_HOST_DEVICES': '0'})
    tool.expect(done.returncode == 1 and done.stderr.count(b'\n') == 1, 'overlap says that there is no device')

done = tool.run('info', '--why')
tool.expect(done.returncode == 0 and done.stdout.count(b'\n') == 1, '--why prints one line')
done = tool.run('--version')
tool.expect(done.returncode == 0 and done.stdout.startswith(b'runnel '), '--version')
