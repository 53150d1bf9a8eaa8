"""How the page of `dsjob plan --html` looks: light and dark, on a phone and on a desk."""

from typing import Final

STYLE: Final = """\
:root {
  --page: #fff; --ink: #1b1f24; --soft: #59636e; --line: #d8dee4; --field: #f3f5f7;
  --yes: #1a7f37; --no: #c62828; --open: #9a6700; --speed: #2f6fde;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #101418; --ink: #e6e9ec; --soft: #9aa4ae; --line: #303840; --field: #1b2127;
    --yes: #3fb950; --no: #f85149; --open: #d29922; --speed: #6ea8fe;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem; }
h1 { margin: 1rem 0 0; font-size: 1.6rem; overflow-wrap: anywhere; }
h2 { margin: 2rem 0 .5rem; font-size: 1.15rem; }
header p, .note, em { margin: 0; color: var(--soft); font-style: normal; font-size: .9rem; font-weight: normal; }
code { font: .9em ui-monospace, monospace; overflow-wrap: anywhere; }
.answer { margin: 1rem 0; padding: .75rem 1rem; border-left: .4rem solid var(--soft); background: var(--field); }
.answer p { margin: .25rem 0; }
.answer strong { font-size: 1.2rem; }
.answer.yes { border-color: var(--yes); }
.answer.no { border-color: var(--no); }
.answer.open { border-color: var(--open); }
.wide { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem .75rem .35rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { font-weight: 600; }
.compared th:first-child, .phases th { width: 24%; }
.compared td:nth-child(3) { width: 32%; }
.bar { position: relative; display: flex; height: .9rem; margin: .2rem 0; background: var(--field); }
.bar b { display: block; height: 100%; }
.bar .mark { position: absolute; top: -.15rem; bottom: -.15rem; width: 2px; margin-left: -2px; background: var(--ink); }
.yes { background: var(--yes); } .no { background: var(--no); } .open { background: var(--open); }
.answer.yes, .answer.no, .answer.open { background: var(--field); }
.speed { background: var(--speed); }
.c0 { background: #4e79a7; } .c1 { background: #f28e2b; } .c2 { background: #59a14f; } .c3 { background: #e15759; }
.c4 { background: #b07aa1; } .c5 { background: #76b7b2; } .c6 { background: #edc948; } .c7 { background: #9c755f; }
.c8 { background: #a0cbe8; } .c9 { background: #ffbe7d; } .c10 { background: #8cd17d; } .c11 { background: #86878a; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: .5rem 0; padding: 0; }
.legend li { list-style: none; font-size: .9rem; margin: 0; }
.legend b { display: inline-block; width: .8rem; height: .8rem; margin-right: .4rem; }
li { margin: .4rem 0; }
dt { font-weight: 600; } dd { margin: 0 0 .5rem; overflow-wrap: anywhere; }
@media (max-width: 40rem) {
  .compared tr, .compared th, .compared td { display: block; border: 0; padding: 0; }
  .phases tr, .phases th, .phases td { display: block; border: 0; padding: 0; }
  .compared tr, .phases tr { padding: .5rem 0; border-bottom: 1px solid var(--line); }
  .compared tr:first-child { font-size: .9rem; }
  .compared th:first-child, .compared td:nth-child(3), .phases th { width: auto; }
}
@media print { .bar, .bar b, .legend b { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
