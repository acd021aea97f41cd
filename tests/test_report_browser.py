"""The HTML page in a real browser: no error, no request, filters, opens failures, fits a phone, accessible.

The page under test gets one more script at its end, which uses it as a person would and tells the surrounding page what
it saw; headless Chromium prints that page. So no browser driver is needed.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import synthetic_results as made
from synthetic_results import fails

pytest.importorskip("jinja2", reason="the HTML page needs jinja2")

from harness.report.write import write_all

ROOT = Path(__file__).resolve().parent.parent
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)"
)

MESSAGE = (
    "i=2, j=3: psum: (i=1,j=0) [0] received {(i=0,j=0)[0], 2*(i=0,j=2)[0]}, should be {(i=0,j=0)[0], (i=1,j=0)[0]}; "
    "(i=0,j=2) [1] received {(i=0,j=0)[1]}, should be {(i=1,j=2)[1]}; 3 more of 12"
)
HOSTILE = (
    "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'> <!-- ]]> ' \" &amp;"
)

PROBE = """
<script>
window.problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("securitypolicyviolation", (event) => problems.push("refused: " + event.blockedURI));
const consoleError = console.error;
console.error = (...words) => { problems.push(words.join(" ")); consoleError(...words); };
</script>
"""
ASK = """
<script>
(async () => {
  const $ = (query) => document.querySelector(query);
  const $$ = (query) => [...document.querySelectorAll(query)];
  const settle = () => new Promise((done) => setTimeout(done, 300));
  const type = async (text) => { $("#search").value = text; $("#search").dispatchEvent(new Event("input")); await settle(); };
  const pick = async (id, value) => { $(id).value = value; $(id).dispatchEvent(new Event("change")); await settle(); };
  const count = () => Number($("#count").textContent.split(" of ")[0].replaceAll(",", ""));
  let answer;
  try { answer = await (async () => { BODY })(); } catch (error) { answer = { thrown: String(error.stack) }; }
  parent.postMessage(JSON.stringify({ answer, problems, broken: window.broken || 0,
    requests: performance.getEntriesByType("resource").map((entry) => entry.name) }), "*");
})();
</script>
"""

FRAME = """<!doctype html><iframe src="PAGE" width="WIDTH" height="900" style="border:0"></iframe><script>
addEventListener("message", (event) => {
  const made = document.createElement("pre");
  made.id = "answer";
  made.textContent = event.data;
  document.body.append(made);
});
</script>"""
"""No window of headless Chromium is narrower than 500 pixels, a frame is: so the page is looked at in one."""


def ask(
    page: str, body: str, tmp_path: Path, width: int = 1280, dark: bool = False, library: str = ""
) -> Any:
    """What the JavaScript `body` returns in the page; fails on any error or request the page makes."""
    page = page.replace("<head>", "<head>" + PROBE, 1)
    page = page.replace("</body>", f"<script>{library}</script>" + ASK.replace("BODY", body) + "</body>")
    path = tmp_path / f"page-{width}-{len(list(tmp_path.glob('page-*')))}.html"
    path.write_text(page, encoding="utf-8")
    frame = tmp_path / "frame.html"
    frame.write_text(FRAME.replace("PAGE", path.name).replace("WIDTH", str(width)), encoding="utf-8")
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=30000"]
    command += [f"--window-size={width + 50},1000", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    command += ["--blink-settings=preferredColorScheme=0"] if dark else []
    done = subprocess.run([*command, frame.as_uri()], capture_output=True, text=True, timeout=180)
    found = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, f"the page did not answer: {done.stderr[-2000:]}"
    answer = json.loads(html.unescape(found.group(1)))
    assert answer["problems"] == []
    assert answer["requests"] == []
    assert answer["broken"] == 0
    assert not (isinstance(answer["answer"], dict) and "thrown" in answer["answer"]), answer["answer"]
    return answer["answer"]


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    """A report of 10,000 cases with three causes."""
    truths = (
        fails(leaf="pmax", dtype="bool"),
        fails("crash", control="cond", binder="pmap"),
        fails(derivative="vjp", leaf="psum"),
    )
    records = made.records(10000, *truths)
    for record in records:
        if record["verdict"] != "pass":
            record |= {"message": MESSAGE, "reproducer": "reproducers/one.py"}
    folder = made.write(tmp_path_factory.mktemp("run"), records)
    (folder / "reproducers" / "one.py").write_text("import jax\nraise SystemExit(1)  # <b>reproducer</b>\n")
    assert write_all(folder).notes == ()
    return (folder / "report.html").read_text(encoding="utf-8")


def test_filters_find_what_they_should_without_lag(page, tmp_path):
    seen = ask(
        page,
        """
        const all = count();
        await type("psum_scatter while_loop");
        const searched = count(), first = $("#list .line").textContent;
        const start = performance.now();
        $("#search").value = "no such thing"; $("#search").dispatchEvent(new Event("input"));
        await settle();
        const lag = performance.now() - start - 300;
        const none = count();
        await type("");
        await pick("#verdict", "crash");
        const crashes = count();
        await pick("#verdict", "unexpected");
        const unexpected = count();
        await pick("#key", "leaf");
        const choices = [...$("#value").options].map((option) => option.value);
        await pick("#value", "pmax");
        const pmax = count();
        $("#filters").reset(); await settle();
        return { all, searched, first, none, lag, crashes, unexpected, choices, pmax, again: count() };
        """,
        tmp_path,
    )
    assert seen["all"] == seen["again"] == 10000
    assert 0 < seen["searched"] < 1000 and "psum_scatter" in seen["first"] and "while_loop" in seen["first"]
    assert seen["none"] == 0
    assert seen["lag"] < 300
    assert 0 < seen["crashes"] < seen["unexpected"] < 10000
    assert "psum_scatter" in seen["choices"]
    assert 0 < seen["pmax"] < seen["unexpected"]


def test_long_lists_come_in_pages(page, tmp_path):
    seen = ask(
        page,
        'const first = $$("#list > li").length; $("#more").click(); return [first, $$("#list > li").length, $("#more").hidden];',
        tmp_path,
    )
    assert seen == [100, 200, False]


def test_a_failing_cell_opens_its_cases_diagnosis_and_reproducer(page, tmp_path):
    seen = ask(
        page,
        """
        const table = $('table[data-down="law"]');
        const cell = [...table.querySelectorAll("td.bad1 button, td.bad2 button, td.bad3 button")].find((one) => one.title.includes("pmax.max"));
        const [failing, decided] = cell.textContent.split("/").map(Number);
        cell.click(); await settle();
        const shown = count(), chips = $$("#chips button").map((one) => one.textContent);
        const bad = $$("#list .tag.bad2").length;
        $("#list .row").click();
        const detail = $("#list .detail");
        const result = { failing, decided, shown, chips, bad, text: detail.innerText,
          maps: detail.querySelectorAll("svg[role=img]").length, label: detail.querySelector("svg").getAttribute("aria-label"),
          extra: detail.querySelectorAll("svg")[0].querySelectorAll(".map-extra").length,
          missing: detail.querySelectorAll("svg")[0].querySelectorAll(".map-missing").length,
          ring: detail.querySelectorAll("svg")[0].querySelectorAll(".map-ring").length,
          copy: [...detail.querySelectorAll(".code button")].length };
        detail.querySelector(".code button").click(); await settle();
        result.copied = detail.querySelector(".code button").textContent;
        $("#list .row").click();
        result.closed = $("#list .detail") === null;
        return result;
        """,
        tmp_path,
    )
    assert seen["shown"] == seen["decided"]
    assert seen["bad"] == min(seen["failing"], 100)
    assert len(seen["chips"]) == 2
    assert "import jax\nraise SystemExit(1)  # <b>reproducer</b>" in seen["text"]
    assert "pytest --case '" in seen["text"]
    assert (seen["maps"], seen["extra"], seen["missing"], seen["ring"]) == (2, 1, 1, 1)
    assert seen["label"].startswith("i=1 j=0, element [0]: received i=0 j=0 [0], 2 x i=0 j=2 [0]")
    assert seen["copy"] == 2 and seen["copied"] in ("Copied", "Selected")
    assert seen["closed"]


def test_a_cause_shows_its_cases_and_a_link_opens_one(page, tmp_path):
    seen = ask(
        page,
        """
        const first = $("[data-cause]");
        first.click(); await settle();
        const shown = count(), said = Number(first.textContent.replace(/\\D/g, ""));
        const tags = new Set($$("#list .tag").map((one) => one.textContent));
        $("#chips button").click(); await settle();
        const all = count();
        const line = $("[data-open]").dataset.open;
        location.hash = "#case=" + encodeURIComponent(line); await settle();
        return { shown, said, tags: [...tags], all, open: $("[aria-expanded=true] .line").textContent === line };
        """,
        tmp_path,
    )
    assert seen["shown"] == seen["said"] > 0
    assert seen["tags"] == ["crash"]
    assert seen["all"] == 10000
    assert seen["open"]


@pytest.mark.parametrize("width", [400, 768, 1600])
def test_nothing_sticks_out(page, tmp_path, width):
    seen = ask(
        page,
        """
        for (const one of $$("details")) one.open = true;
        $("#list .row").click(); await settle();
        const wide = document.documentElement;
        return { inner: innerWidth, scroll: wide.scrollWidth, shown: wide.clientWidth,
          hidden: $$("main *").filter((one) => !one.closest(".scroll, pre, svg") && one.getBoundingClientRect().right > innerWidth + 1).length };
        """,
        tmp_path,
        width,
    )
    assert seen["inner"] == width
    assert seen["scroll"] <= seen["shown"]
    assert seen["hidden"] == 0


@pytest.fixture(scope="session")
def axe() -> str:
    """The accessibility checker, from npm into `.envs/web` on first use."""
    place = ROOT / ".envs" / "web"
    script = place / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("no npm here to get axe-core with")
        place.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [npm, "install", "--prefix", str(place), "axe-core@4"], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"axe-core could not be got: {done.stderr[-200:]}")
    return script.read_text(encoding="utf-8")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_is_accessible(page, tmp_path, axe, dark):
    seen = ask(
        page,
        """
        for (const one of $$("details")) one.open = true;
        $("#list .row").click(); await settle();
        const found = await axe.run(document, { resultTypes: ["violations"] });
        return { dark: matchMedia("(prefers-color-scheme: dark)").matches,
          violations: found.violations.map((one) => [one.impact, one.id, one.nodes.length, one.nodes[0].html.slice(0, 120)]) };
        """,
        tmp_path,
        dark=dark,
        library=axe,
    )
    assert seen["dark"] == dark
    assert [one for one in seen["violations"] if one[0] in ("serious", "critical")] == []


@pytest.mark.parametrize("width", [400, 1280])
def test_the_other_pages_fit_and_are_accessible(tmp_path, axe, width):
    from harness.report import compare, history
    from harness.report.results import Run

    truths = fails(leaf="pmax", dtype="bool"), fails("crash", leaf="psum", control="scan")
    runs = [
        Run(
            tmp_path, tuple(made.results(600, *truths[:count])), {"jax": f"0.{8 + count}.0", "backend": "cpu"}
        )
        for count in range(3)
    ]
    for text in (
        compare.page([compare.compare(runs[0], run) for run in runs[1:]]),
        history.page(history.history(runs)),
    ):
        text = text.replace(
            "style-src 'unsafe-inline'", "style-src 'unsafe-inline'; script-src 'unsafe-inline'"
        )
        seen = ask(
            text,
            """
            for (const one of $$("details")) one.open = true;
            const found = await axe.run(document, { resultTypes: ["violations"] });
            return { wide: document.documentElement.scrollWidth, inner: innerWidth,
              violations: found.violations.map((one) => [one.impact, one.id, one.nodes[0].html.slice(0, 120)]) };
            """,
            tmp_path,
            width,
            library=axe,
        )
        assert seen["wide"] <= seen["inner"]
        assert [one for one in seen["violations"] if one[0] in ("serious", "critical")] == []


def test_nothing_from_outside_breaks_out(tmp_path):
    record = made.record("vmap(i:3) > scan(2) > psum(i)", lambda own: "wrong value")
    fields = dict.fromkeys(
        ("case", "rule", "suite", "kind", "message", "worker", "time", "expectation"), HOSTILE
    )
    bad = {
        **record,
        **fields,
        "also": [HOSTILE],
        "rules": [HOSTILE],
        "parameters": {"leaf": [HOSTILE], HOSTILE: [HOSTILE]},
    }
    bad["reproducer"] = "reproducers/one.py"
    folder = made.write(
        tmp_path / "run", [bad, *made.records(50)], jax=HOSTILE, backend=HOSTILE, flags={HOSTILE: HOSTILE}
    )
    (folder / "reproducers" / "one.py").write_text(HOSTILE)
    write_all(folder)
    seen = ask(
        (folder / "report.html").read_text(encoding="utf-8"),
        '$("#list .row").click(); await settle(); return $("#list .detail").innerText + $("#list .line").textContent + document.title;',
        tmp_path,
    )
    assert seen.count("</script><script>window.broken = 1</script>") >= 5


def test_files_outside_the_folder_are_never_shown(tmp_path):
    (tmp_path / "secret.txt").write_text("not for the page")
    record = made.record("vmap(i:3) > psum(i)", lambda own: "wrong value")
    folder = made.write(
        tmp_path / "run", [{**record, "reproducer": "../secret.txt", "log": str(tmp_path / "secret.txt")}]
    )
    write_all(folder)
    assert "not for the page" not in (folder / "report.html").read_text()


def test_a_run_without_failures_and_an_empty_one(tmp_path):
    for count, name in ((30, "sound"), (0, "empty")):
        folder = made.write(tmp_path / name, made.records(count))
        assert write_all(folder).notes == ()
        text = (folder / "report.html").read_text(encoding="utf-8")
        assert ask(text, "return count();", tmp_path) == count
        assert "Diagnosis</h2>" not in text
