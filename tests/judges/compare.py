#!/usr/bin/env python3
"""Compares what suites of tests say of a bare token and of pools: compare.py FOLDER [REASONS]

FOLDER/SUITE/SETUP.* are results as the suites write them: JUnit's XML, the log of a Go, GoogleTest or cmocka program, or the
report log (JSON lines) of pkcs11-check. SETUP is bare, one or three. Prints a table, then each test that is worse
through a pool. Exits with 1 if one of them has no reason in REASONS, or if a reason has no test any more.
"""

import collections
import fnmatch
import json
import pathlib
import re
import sys
import tomllib
import xml.etree.ElementTree

POOLS = ("one", "three")
# A test may not move down: from passed to anything else, or from skipped to failed. A test that a suite does not
# make, because the token lacks the mechanism, is missing.
RANK = {"passed": 2, "diverged": 1, "skipped": 1, "missing": 1, "failed": 0}


def junit(text):
    for case in xml.etree.ElementTree.fromstring(text).iter("testcase"):
        tags = {child.tag for child in case}
        name = case.get("classname")
        name = f"{name}.{case.get('name')}" if name else case.get("name")
        yield name, "failed" if tags & {"failure", "error"} else "skipped" if "skipped" in tags else "passed"


def go(text):
    words = {"PASS": "passed", "FAIL": "failed", "SKIP": "skipped"}
    for word, name in re.findall(r"^ *--- (PASS|FAIL|SKIP): (\S+)", text, re.MULTILINE):
        yield name, words[word]


def googletest(text):
    words = {"      OK": "passed", " FAILED ": "failed", " SKIPPED": "skipped"}
    for word, name in re.findall(r"^\[ ?(      OK| FAILED | SKIPPED) \] ([^\s,]+).*\(\d+ ms\)$", text, re.MULTILINE):
        yield name, words[word]


def cmocka(text):
    """A test that neither passed nor failed has ended the program."""
    words = {"      OK": "passed", " FAILED ": "failed", " SKIPPED": "skipped"}
    said = re.findall(r"\[ ?(      OK| FAILED | SKIPPED) \] (\w[\w:-]*)$", text, re.MULTILINE)
    results = dict.fromkeys(re.findall(r"^\[ RUN      \] (\S+)$", text, re.MULTILINE), "failed")
    yield from (results | {name: words[word] for word, name in said}).items()


def pkcs11_check(text):
    results = {}
    for line in text.splitlines():
        report = json.loads(line)
        if report.get("$report_type") != "TestReport":
            continue
        if report["when"] != "call" and report["outcome"] == "passed":
            continue
        name = report["nodeid"].split("pkcs11_check/testcases/")[-1]
        outcome = "diverged" if "wasxfail" in report else report["outcome"]
        if results.get(name) != "failed":
            results[name] = outcome
    yield from results.items()


READERS = {".xml": junit, ".go": go, ".gtest": googletest, ".cmocka": cmocka, ".jsonl": pkcs11_check}


def read(folder):
    """Results by suite, set-up and test."""
    suites = collections.defaultdict(dict)
    for file in sorted(pathlib.Path(folder).glob("*/*")):
        if file.suffix in READERS:
            results = dict(READERS[file.suffix](file.read_text(errors="replace")))
            suites[file.parent.name][file.stem] = results
    return suites


def table(suites):
    print("| suite | set-up | passed | failed | diverged | skipped |\n|---|---|---|---|---|---|")
    for suite, setups in suites.items():
        for setup, results in setups.items():
            counts = collections.Counter(results.values())
            cells = (counts[outcome] for outcome in ("passed", "failed", "diverged", "skipped"))
            print(f"| {suite} | {setup} | {' | '.join(map(str, cells))} |")


def worse(suites):
    """Each test that is worse through a pool than on the bare token."""
    for suite, setups in suites.items():
        bare = setups.get("bare", {})
        for pool in POOLS:
            results = setups.get(pool, {})
            for test in sorted(bare.keys() | results.keys()):
                before, after = bare.get(test, "missing"), results.get(test, "missing")
                if RANK[after] < RANK[before]:
                    yield suite, pool, test, f"{before}, then {after}"


def main(folder, reasons):
    suites = read(folder)
    wrong = [f"{suite}: no results of {setup}"
             for suite, setups in suites.items() for setup in ("bare", *POOLS) if not setups.get(setup)]
    if not suites:
        wrong.append(f"{folder}: no results at all")
    table(suites)
    known = tomllib.loads(pathlib.Path(reasons).read_text())["reason"] if reasons else []
    used = collections.Counter()
    for suite, pool, test, change in worse(suites):
        found = [(number, pattern) for number, reason in enumerate(known)
                 if reason["suite"] == suite and pool in reason.get("pools", POOLS)
                 for pattern in reason["tests"] if fnmatch.fnmatchcase(test, pattern.replace("[", "[[]"))]
        used.update(found)
        if not found:
            wrong.append(f"{suite}, {pool}: {test}: {change}; no reason is known")
    for number, reason in enumerate(known):
        if reason["suite"] in suites:
            wrong += [f"{reason['suite']}: {pattern}: a reason is given, and nothing is worse: delete it"
                      for pattern in reason["tests"] if not used[number, pattern]]
    print()
    print("\n".join(wrong) or "Every test that is worse through a pool has its reason.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
