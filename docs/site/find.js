// SPDX-License-Identifier: Apache-2.0
// The site's search: all texts of guides and reference. docs/site/search.py writes find-index.js: [title, heading, address, text] of each section.
'use strict';

// 0 for a guide, 1 for the reference, 2 for a decision.
function kindOf(address) {
  return address.startsWith('decision_') ? 2 : /^(class|struct|group__|namespace|concept)|_8hpp|-example/.test(address) ? 1 : 0;
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

// Each page once, with its sections below it.
function showFound(list, found) {
  list.replaceChildren();
  const pages = new Map();
  for (const [title, heading, address] of found) {
    if (!pages.has(title)) pages.set(title, {address: address.split('#')[0], sections: []});
    if (heading && heading !== title) pages.get(title).sections.push([heading, address]);
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
    for (const [heading, address] of page.sections) link(heading, address, 'section');
  }
  if (!pages.size) list.textContent = 'nothing found';
}

if (typeof document !== 'undefined') {
  const box = document.createElement('div');
  box.id = 'find';
  box.innerHTML = '<input type="search" placeholder="Search all texts" aria-label="Search all texts"><div id="found" hidden></div>';
  document.getElementById('top').prepend(box);
  const [input, list] = box.children;
  let sections = null;
  const search = () => {
    list.hidden = !input.value.trim();
    if (!list.hidden && sections) showFound(list, findSections(sections, input.value));
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
