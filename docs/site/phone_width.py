#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""No page of the site scrolls sideways on a phone: Chromium opens each in a frame of 390 pixels. Wide tables, code and pictures scroll in
boxes of their own.

usage: phone_width.py HTML-FOLDER [PAGE...]"""
import functools
import http.server
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading

WIDTH = 390
LIMIT = 600  # seconds for all pages
# Opens the pages one after the other, and sends what is too wide. The page itself scrolls in `doc-content`, which Doxygen's script makes as
# wide as the window. A thing in a box that scrolls is none of the page's.
OPENER = """<!DOCTYPE html><body><script>
const found = {};
function tooWide(page, width) {
  const boxes = [page.scrollingElement, page.getElementById('doc-content'), page.getElementById('top')];
  if (!boxes.some(box => box && box.scrollWidth > width)) return [];
  const scrolls = box => /auto|scroll|hidden/.test(page.defaultView.getComputedStyle(box).overflowX);
  const isBoxed = thing => {
    for (let box = thing.parentElement; box && !boxes.includes(box); box = box.parentElement) if (scrolls(box)) return true;
    return false;
  };
  const things = [...page.querySelectorAll('body *')].filter(
      thing => Math.max(thing.getBoundingClientRect().right, scrolls(thing) ? 0 : thing.scrollWidth) > width + 1 && !isBoxed(thing));
  const words = thing => `${thing.tagName.toLowerCase()}.${thing.className}: ${thing.textContent.trim().slice(0, 60)}`;
  return things.length ? things.slice(-2).map(words) : ['something'];
}
const until = check => new Promise(resolve => { const ask = () => check() ? resolve() : setTimeout(ask, 2); ask(); });
async function openAll(names, width) {
  for (const name of names) {
    const frame = document.createElement('iframe');
    frame.style = `width: ${width}px; height: 844px; border: 0`;
    const isOpen = new Promise(resolve => { frame.onload = resolve; });
    frame.src = name;
    document.body.append(frame);
    await isOpen;
    // Doxygen's script gives the contents a height when the page is there.
    const contents = frame.contentDocument.getElementById('doc-content');
    await until(() => !contents || contents.style.height);
    const wide = tooWide(frame.contentDocument, width);
    if (wide.length) found[name] = wide;
    frame.remove();
  }
  await fetch('/found', {method: 'POST', body: JSON.stringify(found)});
}
openAll(NAMES, WIDTH).catch(error => fetch('/found', {method: 'POST', body: JSON.stringify({script: [String(error)]})}));
</script></body>"""


class Pages(http.server.SimpleHTTPRequestHandler):
    """The site, the page that opens the others, and what that page sends."""
    names, found, is_done = [], {}, threading.Event()

    def do_GET(self):
        if self.path != '/open-all':
            return super().do_GET()
        self.send_response(200)
        self.send_header('Content-Type', 'text/html')
        self.end_headers()
        self.wfile.write(OPENER.replace('NAMES', json.dumps(self.names)).replace('WIDTH', str(WIDTH)).encode())

    def do_POST(self):
        self.found.update(json.loads(self.rfile.read(int(self.headers['Content-Length']))))
        self.send_response(204)
        self.end_headers()
        self.is_done.set()

    def log_message(self, *words):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Says nothing of what the browser no longer wants, as when it closes a page."""

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def too_wide(folder, names):
    """For each page that scrolls sideways: what does not fit."""
    Pages.names = names
    server = Server(('127.0.0.1', 0), functools.partial(Pages, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # The browser's helpers may still write while the folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = subprocess.Popen(
            [shutil.which('chromium'), '--headless', '--no-sandbox', '--disable-gpu', '--hide-scrollbars', f'--user-data-dir={profile}',
             '--remote-debugging-port=0', f'http://127.0.0.1:{server.server_port}/open-all'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        is_done = Pages.is_done.wait(LIMIT)
        browser.terminate()
        browser.wait()
    server.shutdown()
    return Pages.found if is_done else {'all': [f'the browser did not open them within {LIMIT} s']}


def main():
    folder = pathlib.Path(sys.argv[1])
    names = sys.argv[2:] or sorted(path.name for path in folder.glob('*.html'))
    found = too_wide(folder, names)
    for name, things in found.items():
        print(f'{name}: wider than {WIDTH} pixels: ' + '; '.join(things))
    print(f'{len(names)} pages, {len(found)} too wide')
    sys.exit(1 if found or not names else 0)


if __name__ == '__main__':
    main()
