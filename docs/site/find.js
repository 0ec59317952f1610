// SPDX-License-Identifier: Apache-2.0
// The site's search: all texts of guides and reference. docs/site/search.py writes find-index.js: [title, heading, address, text] of each section.
'use strict';

// 0 for a guide, 1 for the first page, which lists the guides, 2 for the reference, 3 for a decision.
function kindOf(address) {
  if (address.startsWith('decision_')) return 3;
  if (/^(class|struct|group__|namespace|concept)|_8hpp|-example/.test(address)) return 2;
  return address.startsWith('index.html') ? 1 : 0;
}

// The sections in which every word occurs: first those whose heading has them, then those whose text has words that begin so, then the others.
// Among these guides come first, then what has the words more often.
function findSections(sections, typed) {
  const words = typed.toLowerCase().split(/\s+/).filter(word => word);
  if (!words.length) return [];
  const begin = words.map(word => new RegExp('(^|[^a-z0-9])' + word.replace(/[^a-z0-9_]/g, '\\$&'), 'g'));
  const found = [];
  for (const section of sections) {
    const [title, heading, address, text] = section.map(part => part.toLowerCase());
    const all = title + ' ' + heading + ' ' + text;
    if (!words.every(word => all.includes(word))) continue;
    const begins = part => begin.every(pattern => part.search(pattern) >= 0);
    const rank = begins(title + ' ' + heading) ? 0 : begins(all) ? 1 : 2;
    const often = begin.reduce((sum, pattern) => sum + (all.match(pattern) || []).length, 0);
    found.push({section, rank, kind: kindOf(address), often});
  }
  found.sort((a, b) => a.rank - b.rank || a.kind - b.kind || b.often - a.often);
  return found.slice(0, 40).map(each => each.section);
}

// The text around the first word that was typed.
function excerptOf(text, typed) {
  const word = typed.toLowerCase().split(/\s+/).filter(each => each).find(each => text.toLowerCase().includes(each));
  if (!word) return '';
  const at = text.toLowerCase().indexOf(word), from = Math.max(0, text.lastIndexOf(' ', at - 40) + 1);
  return (from > 0 ? '... ' : '') + text.slice(from, at + word.length + 60) + ' ...';
}

// Each page once, with its sections below it.
function showFound(list, found, typed) {
  list.replaceChildren();
  const pages = new Map();
  for (const [title, heading, address, text] of found) {
    if (!pages.has(title)) pages.set(title, {address: address.split('#')[0], sections: []});
    pages.get(title).sections.push([heading && heading !== title ? heading : '', address, excerptOf(text, typed)]);
  }
  const link = (words, address, kind) => {
    const line = document.createElement('a');
    line.textContent = words;
    line.href = address;
    line.className = kind;
    list.append(line);
  };
  for (const [title, page] of pages) {
    link(title, page.address, 'page');
    for (const [heading, address, excerpt] of page.sections) {
      if (heading) link(heading, address, 'section');
      if (excerpt) link(excerpt, address, 'excerpt');
    }
  }
  if (!pages.size) list.textContent = 'nothing found';
}

// A button on each block of code that copies it, as far as the browser permits that.
function addCopyButtons() {
  for (const block of document.querySelectorAll('div.fragment, pre.fragment')) {
    const button = document.createElement('button');
    button.textContent = 'Copy';
    button.className = 'copy-code';
    button.addEventListener('click', () => {
      const lines = [...block.querySelectorAll('.line')].map(line => line.textContent);
      navigator.clipboard.writeText(lines.length ? lines.join('\n') : block.firstChild.textContent);
      button.textContent = 'Copied';
      setTimeout(() => { button.textContent = 'Copy'; }, 1500);
    });
    block.append(button);
  }
}

// The page of a class begins with a list of its members.
function addMembers() {
  const titles = /\/(class|struct)[^/]*$/.test(location.pathname) ? [...document.querySelectorAll('h2.memtitle')] : [];
  if (titles.length < 4) return;
  const list = document.createElement('div');
  list.className = 'members';
  const seen = new Set();
  for (const title of titles) {
    const name = title.textContent.replace(/[◆§]|\[.*/g, '').trim(), place = title.querySelector('a');
    if (!place || seen.has(name)) continue;
    seen.add(name);
    const link = document.createElement('a');
    link.href = place.getAttribute('href');
    link.textContent = name;
    list.append(link, ' ');
  }
  document.querySelector('div.contents').prepend(list);
}

if (typeof document !== 'undefined') {
  addCopyButtons();
  addMembers();
  const box = document.createElement('div');
  box.id = 'find';
  box.innerHTML = '<input type="search" placeholder="Search all texts" aria-label="Search all texts"><div id="found" hidden></div>';
  document.getElementById('top').prepend(box);
  const [input, list] = box.children;
  let sections = null;
  const search = () => {
    list.hidden = !input.value.trim();
    if (!list.hidden && sections) showFound(list, findSections(sections, input.value), input.value);
  };
  input.addEventListener('input', search);
  input.addEventListener('focus', () => {
    if (sections) return;
    const script = document.createElement('script');  // a file that is opened from a folder may load scripts, and nothing else
    script.src = 'find-index.js';
    script.onload = () => { sections = window.findIndex; search(); };
    document.body.append(script);
    sections = [];
  });
  input.addEventListener('keydown', event => { if (event.key === 'Enter' && list.querySelector('a')) list.querySelector('a').click(); });
  document.addEventListener('click', event => { if (!box.contains(event.target)) list.hidden = true; });
}
if (typeof module !== 'undefined') module.exports = {findSections};
