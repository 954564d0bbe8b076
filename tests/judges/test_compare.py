"""Tests of compare.py on canned results, and of reasons.toml against docs/conformance.md."""

import contextlib
import io
import pathlib
import re
import tempfile
import tomllib
import unittest

import compare

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parent.parent / "docs/conformance.md"
REASONS = tomllib.loads((HERE / "reasons.toml").read_text())["reason"]


def go(**tests):
    """The log of a Go program with these results."""
    return "".join(f"    --- {word.upper()}: {test} (0.00s)\n" for test, word in tests.items())


BARE = go(TestSign="pass", TestHash="skip", TestWrap="fail")


class Comparison(unittest.TestCase):
    def compare(self, reasons="", suite="crypto11", suffix="go", **results):
        """Exit code and output for results by set-up; without one of its own a set-up has the bare token's."""
        bare = results.get("bare") or BARE
        results = {"bare": bare} | {pool: bare for pool in compare.POOLS} | results
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "results" / suite).mkdir(parents=True)
            for setup, text in results.items():
                if text is not None:
                    (folder / "results" / suite / f"{setup}.{suffix}").write_text(text)
            (folder / "reasons.toml").write_text(reasons or "reason = []")
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                code = compare.main(folder / "results", folder / "reasons.toml")
            return code, said.getvalue()

    def holds(self, **arguments):
        code, said = self.compare(**arguments)
        self.assertEqual(code, 0, said)
        self.assertIn("has its reason", said)
        return said

    def fails(self, *words, **arguments):
        code, said = self.compare(**arguments)
        self.assertEqual(code, 1, said)
        self.assertNotIn("has its reason", said)
        for word in words:
            self.assertIn(word, said)
        return said

    def test_equal_results_hold(self):
        said = self.holds()
        for setup in ("bare", "one", "three"):
            self.assertIn(f"| crypto11 | {setup} | 1 | 1 | 0 | 1 |\n", said)

    def test_better_results_hold(self):
        self.holds(three=go(TestSign="pass", TestHash="pass", TestWrap="pass", TestNew="pass"))

    def test_a_new_failure_fails(self):
        for pool in compare.POOLS:
            for worse, change in (
                (go(TestSign="fail", TestHash="skip", TestWrap="fail"), "TestSign: passed, then failed"),
                (go(TestSign="skip", TestHash="skip", TestWrap="fail"), "TestSign: passed, then skipped"),
                (go(TestHash="skip", TestWrap="fail"), "TestSign: passed, then missing"),
                (go(TestSign="pass", TestHash="fail", TestWrap="fail"), "TestHash: skipped, then failed"),
                (BARE + go(TestNew="fail"), "TestNew: missing, then failed"),
            ):
                self.fails(f"crypto11, {pool}: {change}; no reason is known", **{pool: worse})

    def test_a_failure_with_a_reason_holds(self):
        worse = go(TestSign="fail", TestHash="skip", TestWrap="fail")
        for pattern in ("TestSign", "Test*gn", "*"):
            self.holds(reasons=reason(pattern), one=worse, three=worse)

    def test_a_reason_is_for_its_suite_its_pools_and_its_tests_alone(self):
        worse = go(TestSign="fail", TestHash="skip", TestWrap="fail")
        unknown = "TestSign: passed, then failed; no reason is known"
        self.fails(f"one: {unknown}", reasons=reason("TestSign", suite="p11test"), one=worse)
        self.fails(f"one: {unknown}", reasons=reason("TestSig"), one=worse)
        self.fails(f"one: {unknown}", reasons=reason("TestSign", pools=["three"]), one=worse, three=worse)
        self.holds(reasons=reason("TestSign", pools=["three"]), three=worse)

    def test_brackets_in_a_pattern_are_brackets(self):
        bare = "<t><testcase name='test_x[a]'/></t>"
        worse = "<t><testcase name='test_x[a]'><failure/></testcase></t>"
        self.holds(reasons=reason("test_x[a]"), suffix="xml", bare=bare, one=worse)
        self.fails("test_x[a]", reasons=reason("test_x[ab]"), suffix="xml", bare=bare, one=worse)

    def test_a_stale_reason_is_reported(self):
        stale = "crypto11: TestSign: a reason is given, and nothing is worse: delete it"
        self.fails(stale, reasons=reason("TestSign"))
        # Also one of several patterns.
        worse = go(TestSign="pass", TestHash="fail", TestWrap="fail")
        said = self.fails(stale, reasons=reason("TestHash", "TestSign"), three=worse)
        self.assertNotIn("TestHash: a reason", said)

    def test_reasons_of_suites_that_did_not_run_are_left_alone(self):
        self.holds(reasons=reason("TestSign", suite="p11test"))

    def test_missing_results_fail(self):
        for setup in ("bare", *compare.POOLS):
            self.fails(f"crypto11: no results of {setup}", **{setup: None})
            self.fails(f"crypto11: no results of {setup}", **{setup: "the program has died\n"})
        self.fails("no results at all", bare=None, one=None, three=None)


def reason(*tests, suite="crypto11", pools=None):
    lines = ["[[reason]]", f"suite = {suite!r}", "why = 'because'", f"tests = {list(tests)!r}"]
    return "\n".join(lines + ([f"pools = {pools!r}"] if pools else []))


class Readers(unittest.TestCase):
    """Each form that suites write their results in."""

    def reads(self, suffix, text, **expected):
        self.assertEqual(dict(compare.READERS[suffix](text)), expected)

    def test_junit(self):
        cases = "".join(
            f"<testcase name='{name}'>{inside}</testcase>"
            for name, inside in (("good", ""), ("bad", "<failure/>"), ("broken", "<error/>"), ("left", "<skipped/>"))
        )
        self.reads(".xml", f"<testsuites><testsuite>{cases}</testsuite></testsuites>",
                   good="passed", bad="failed", broken="failed", left="skipped")
        named = dict(compare.junit("<t><testcase classname='tests.Sign' name='good'/></t>"))
        self.assertEqual(named, {"tests.Sign.good": "passed"})

    def test_go(self):
        self.reads(".go", "=== RUN   Good\n--- PASS: Good (0.1s)\n    --- FAIL: Bad (0.00s)\n--- SKIP: Left (0.0s)\n",
                   Good="passed", Bad="failed", Left="skipped")

    def test_googletest(self):
        self.reads(".gtest", "[ RUN      ] A.Good\n[       OK ] A.Good (3 ms)\n[  FAILED  ] A.Bad, where x = 1 (0 ms)\n"
                             "[  SKIPPED ] A.Left (0 ms)\n[  FAILED  ] A.Bad\n",
                   **{"A.Good": "passed", "A.Bad": "failed", "A.Left": "skipped"})

    def test_cmocka_and_a_test_that_ends_the_program(self):
        self.reads(".cmocka", "[ RUN      ] good\n[       OK ] good\n[ RUN      ] bad\n[  FAILED  ] bad\n"
                              "[ RUN      ] left\n[  SKIPPED ] left\n[ RUN      ] crash\n",
                   good="passed", bad="failed", left="skipped", crash="failed")

    def test_pkcs11_check(self):
        lines = (
            '{"$report_type": "SessionStart"}',
            report("good"),
            report("left", outcome="skipped", when="setup"),
            report("bad", outcome="failed"),
            report("late", outcome="passed"),
            report("late", outcome="failed", when="teardown"),
            report("diverged", outcome="skipped", more=', "wasxfail": ""'),
        )
        self.reads(".jsonl", "\n".join(lines),
                   good="passed", left="skipped", bad="failed", late="failed", diverged="diverged")


def report(name, outcome="passed", when="call", more=""):
    return (f'{{"$report_type": "TestReport", "nodeid": "x/pkcs11_check/testcases/{name}", "when": "{when}", '
            f'"outcome": "{outcome}"{more}}}')


class Page(unittest.TestCase):
    """docs/conformance.md has a row for each reason, and each row says which suites or tests show it."""

    def rows(self):
        _, table = PAGE.read_text().split("## Differences that stay\n")
        rows = [[cell.strip() for cell in line.strip("|").split("|")]
                for line in table.splitlines() if line.startswith("| ")]
        self.assertEqual(rows[0], ["what", "why", "shown by"])
        return rows[1:]

    def test_each_reason_names_a_row(self):
        rows = [what for what, _, _ in self.rows()]
        self.assertEqual(len(rows), len(set(rows)))
        for each in REASONS:
            self.assertIn(each["row"], rows, each["why"])

    def test_each_row_names_the_suites_of_its_reasons(self):
        for what, why, shown_by in self.rows():
            self.assertTrue(why, what)
            names = [name.strip() for name in shown_by.split(",")]
            tests = {name for name in names if name.startswith("`")}
            suites = {each["suite"] for each in REASONS if each["row"] == what}
            self.assertEqual(set(names) - tests - BY_HAND, suites, what)
            self.assertTrue(suites or tests, f"nothing shows: {what}")
            for test in tests:
                self.assertTrue(exists(test), f"{what}: there is no {test}")

    def test_each_suite_is_one_that_runs(self):
        script = (HERE.parent.parent / "scripts/judges.sh").read_text()
        (limits,) = re.findall(r"^declare -A limit=\((.*)\)$", script, re.MULTILINE)
        suites = set(re.findall(r"\[([\w-]+)\]", limits))
        self.assertEqual(suites, {each["suite"] for each in REASONS})


# In no registry, so that `make judges` does not have them.
BY_HAND = {"go-kms-wrapping", "google/pkcs11test"}


def exists(name):
    """Whether there is a test `file.rs::name`, in backquotes."""
    file, test = re.fullmatch(r"`([\w/]+\.rs)::(\w+)`", name).groups()
    files = (HERE.parent / "suite/tests").glob(f"**/{file}")
    return any(f"fn {test}(" in path.read_text() for path in files)


if __name__ == "__main__":
    unittest.main()
