// How the search of the site ranks what it finds. Guides whose title has all words come first, then
// a class or function of that name, other guides, and the rest of the reference. Attributes and
// methods come last. A query that is spelled like a Python name keeps Sphinx's own order, which
// follows from the numbers below.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,

  score: ([docname, title, , descr, score], query) => {
    const asked = (query ?? new URLSearchParams(window.location.search).get("q") ?? "").trim();
    if (/[_.]|[a-z][A-Z]/.test(asked)) return score;
    if (/ (attribute|method|property)\b/.test(descr ?? "")) return score - 20;
    const same = title.toLowerCase() === asked.toLowerCase();
    if (docname.startsWith("api/")) return score + (same ? 18 : 0);
    const words = asked.toLowerCase().split(/\s+/);
    const named = words.every((word) => title.toLowerCase().includes(word));
    const beside = /^(architecture|changelog|contributing|decisions)$/.test(docname);
    return score + 5 + (named ? (title.includes(" > ") ? 15 : 20) : 0) - (beside ? 12 : 0);
  },
};
