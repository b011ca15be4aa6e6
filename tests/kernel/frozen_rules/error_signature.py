r"""The error signature of a failed check (S9): the same failure again has the same signature.

Rules
1. A signature comes from the command and from a few lines of stderr, nothing else.
2. Values that differ between two attempts with the same failure are masked: times, dates,
   durations, addresses, object ids, temporary paths, line numbers, ports, process ids, counters.
3. Values that identify the failure stay: the kind of the exception, the names of files and tests,
   the two sides of a comparison, the number of failures. When in doubt a value stays: a signature
   that is too fine costs another round, one too coarse stops a run that was making progress.
4. The cost does not grow with the input. Only the first HEAD_CHARS and the last TAIL_CHARS are
   read, a line is cut to RAW_LINE_CHARS before it is masked, and every pattern takes linear
   time: it starts at a fixed character or a word's edge, and has no repeat inside a repeat that
   could match the same text.

Theory
    window   head and tail of stderr, without colours; of a line redrawn with \r the last state
    lines    those with a letter or a digit in them; equal ones count once
    chosen   the first LINES_MAX of them, then, because a traceback or a test report says at its end
             what is wrong, the first and last few error lines after those, and the raised exception
    masked   each line through the table MASKS, in the table's order, then cut to LINE_CHARS
    result   "command | the most telling line | #hash of command and all chosen lines"

The command is masked by COMMAND_MASKS only: `sleep 5s` and `sleep 6s` are two commands.
A file in a temporary directory keeps its name (`/tmp/x1/src/app.py` is `<tmp>/app.py`), since a
working copy may lie there; a name that is itself temporary (`tmpab12cd34.py`, `ccX9aB12.o`) is
masked too.

Not here: counting the repeats and stopping (the guard's same-error rule), running the command.
"""

import functools
import hashlib
import re

HEAD_CHARS = 8_192
TAIL_CHARS = 4_096
CACHED_CHARS_MAX = 4_096
COMMAND_CHARS = 4_096
RAW_LINE_CHARS = 4_000
WORD_CHARS = 200
"""How far back a cut of a raw line looks for the end of a word."""
LINE_CHARS = 500
LINES_MAX = 10
ERROR_LINES_MAX = 5
"""Error lines taken beyond the first LINES_MAX, from the front and from the back each."""
SCAN_LINES_MAX = 200
"""Raw lines masked in search of LINES_MAX different ones."""
DISPLAY_COMMAND_CHARS = 60
DISPLAY_LINE_CHARS = 120
FIRST_ERROR_CHARS = 300
HASH_CHARS = 12

_ANSI = re.compile(
    r"\x1b\[[0-9;:<=>?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\^_]"
    r"|\^\[\[[0-9;]*m"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\ufeff]")
_SPACE = re.compile(r"\s+")
_MEANING = re.compile(r"[^\W_]")

_TRACEBACK = "Traceback (most recent call last)"
_FRAME = 'File "'
_PYTEST_ERROR = re.compile(r"E\s+\S")
_ERROR = re.compile(
    r"\b(?:error|errors|exception|fail|failed|failure|failures|fatal|panic|panicked|undefined"
    r"|cannot|denied|refused|aborted|killed|not found|no such|segmentation fault|assert)\b"
    r"|Error\b|Exception\b|\bERR!"
    r"|^E\s|^\s*(?:expected|received|got|want|left|right|actual)\b|[●✕✗✘×]",
    re.IGNORECASE,
)

_TEMP_NAME = re.compile(r"tmp[\w.-]*|cc\w{6}\.\w+", re.IGNORECASE)
_FILE_NAME = re.compile(r"[\w.@+-]*[A-Za-z_][\w.@+-]*\.[A-Za-z]\w{0,9}")


def _mask_temp_path(match: re.Match[str]) -> str:
    """Keep the file's name if the path is a file below a subdirectory of the temporary one."""
    parts = re.split(r"[/\\]+", match["rest"])
    name = parts[-1].rstrip(".")
    keep = len(parts) > 1 and _FILE_NAME.fullmatch(name) and not _TEMP_NAME.fullmatch(name)
    return f"<tmp>/{name}" if keep else "<tmp>"


_MONTH = (
    r"(?-i:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sep(?:t|tember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_DAY = r"(?-i:Mon|Tue|Wed|Thu|Fri|Sat|Sun)(?:[a-z]{0,6}day)?"
_CLOCK = r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?"
_ZONE = r"(?:\s?(?:Z\b|UTC\b|GMT\b|[+-]\d{2}:?\d{2}\b))?"
_FIRST_PART = r"(?<![\w.-])(?:-[IL])?"
_PATH_TAIL = r"(?P<rest>[^\s:'\"`<>|()\[\]{},;]*)"

# Values that identify one attempt and not the failure, anywhere in a text.
COMMAND_MASKS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), mask)
    for pattern, mask in (
        (r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "<uuid>"),
        (r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b", "<uuid>"),
        # 2026-01-31T10:11:12.123Z, also as npm writes it into a file name: 2026-01-31T10_11_12_123Z
        (rf"\b\d{{4}}-\d{{2}}-\d{{2}}[T _]{_CLOCK}{_ZONE}", "<time>"),
        (r"\b\d{4}-\d{2}-\d{2}T\d{2}[_-]\d{2}[_-]\d{2}(?:[_.-]\d{1,9})?Z?", "<time>"),
        (r"\b\d{8}T\d{6}(?:\.\d{1,9})?Z?\b", "<time>"),
        (r"\b\d{4}([-/])\d{2}\1\d{2}(?!\d)", "<date>"),
        (r"\b1[5-9]\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d{1,9})?\b(?![.]\d)", "<time>"),
        # Seven digits or more are an address; fewer may be a compared value, unless "at 0x".
        (r"\b0x[0-9a-fA-F]{7,}\b|\+0x[0-9a-fA-F]+\b|(?<=\bat )0x[0-9a-fA-F]+\b", "<addr>"),
        # A git object: hexadecimal with both a letter and a digit, so that no plain number and no
        # plain word (decade, 1234567) is one; or so long that nothing else is likely.
        (r"\b(?=\d{0,40}[a-f])(?=[a-f]{0,40}\d)[0-9a-f]{7,40}\b|\b[0-9a-fA-F]{32,}\b", "<hex>"),
    )
)

# The order matters: longer and more specific patterns first (a date before a number in it).
MASKS: tuple[tuple[re.Pattern[str], str], ...] = COMMAND_MASKS + tuple(
    (re.compile(pattern, re.IGNORECASE), mask)
    for pattern, mask in (
        (
            rf"\b(?:{_DAY},? )?{_MONTH} \d{{1,2}}(?:,? \d{{4}}(?: {_CLOCK})?| {_CLOCK}){_ZONE}",
            "<time>",
        ),
        (rf"\b(?:{_DAY},? )?\d{{1,2}}[ /-]{_MONTH}[ /-]\d{{4}}(?:[ :]{_CLOCK})?{_ZONE}", "<time>"),
        (r"\b\d{1,2}([./-])\d{1,2}\1\d{4}\b", "<date>"),
        # Locations in files, before clocks: `a.c:12:30:` is a location, not a time.
        (r"(\.[a-z_]\w{0,9}|\b\w{0,20}file|<tmp>):\d+(?::\d+)?(?:-\d+)?\b", r"\1:<n>"),
        (r"(\.[a-z]\w{0,9})\(\d+(?:,\d+){0,3}\)(?=\s?:\s?(?:fatal|error|warning))", r"\1(<n>)"),
        (
            r"\b(lines?|columns?|col|ln|char|offset|position|zeile|spalte|ligne|colonne|l[ií]nea"
            r"|linha|riga|regel|строк[аеи]):? \d+(?:\s?[-,:]\s?\d+)?\b",
            r"\1 <n>",
        ),
        (r"第 ?\d+ ?行|(?<!\d)\d+ ?行目", "<n>行"),
        (r"^(\S{0,40}sh): \d+:", r"\1: <n>:"),
        (r"^([ >]*)\d+ *([|│])", r"\1<n> \2"),
        # Clocks and durations.
        (r"\b\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?(?: ?[ap]m)?\b", "<time>"),
        (r"\b\d{1,2}:\d{2} ?[ap]m\b|\[\d{1,2}:\d{2}\]|^\d{1,2}:\d{2}(?= )", "<time>"),
        (r"^\[ {0,8}\d{1,8}\.\d{6}\]", "<time>"),
        (r"\b(after|took) \d{1,3}:\d{2}\b", r"\1 <dur>"),
        (r"\b(?:\d+h ?)?\d+m ?\d+(?:\.\d+)?s\b", "<dur>"),
        (
            r"\b\d+(?:\.\d+)?(?:e-\d+)? ?(?-i:ns|µs|μs|us|ms|s|secs?|seconds?)\b",
            "<dur>",
        ),
        (
            r"\b\d+(?:[.,]\d+)? (?:milliseconds?|mins?|minutes?|hours?|sekunden?|minuten?|stunden?"
            r"|secondes?|heures?|segundos?|minutos?|horas?|second(?:i|o|en)|minut[io]|секунд[аы]?|минут[аы]?)\b",
            "<dur>",
        ),
        (r"(?<!\d)\d+(?:\.\d+)? ?(?:毫秒|ミリ秒|秒|分钟|分間)", "<dur>"),
        (r", estimated <dur>", ""),
        (
            r"\b((?:\w{1,20}_)?(?:duration|elapsed|latency|took)(?:_(?:ns|us|ms|s|secs?|seconds|millis))?"
            r"[\"']?\s?[=:]\s?)\d+(?:\.\d+)?\b",
            r"\1<dur>",
        ),
        # Object ids and addresses: Java's Type@1a2b3c, CPython's id(), valgrind's ==123==.
        (r"(?<=\w)@(?=[a-f]{0,8}\d)[0-9a-f]{5,8}\b", "@<addr>"),
        (r"\b\d{12,}\b", "<id>"),
        (r"==\d+==", "==<pid>=="),
        (r"\b(pid|tid|goroutine|worker)([\"']?[ =:#]{1,3})\d+\b", r"\1\2<pid>"),
        (r"\((node|python|ruby|java):\d+\)", r"(\1:<pid>)"),
        (r"^(<time> (?:\S{1,60} )?[\w./-]{1,40})\[\d+\](?=:)", r"\1[<pid>]"),
        (r"\b(process )#?\d{3,}\b", r"\1<pid>"),
        (r"\b(\w{0,40}(?:thread|worker|process|task|exec))-\d+\b", r"\1-<pid>"),
        (r"\b(pool)-\d+(?=-thread)", r"\1-<pid>"),
        (r"(\$\$lambda\$)\d+", r"\1<n>"),
        (r"\b(thread '[^']{0,200}') \(\d+\)", r"\1"),
        (r"\[gw\d+\]", "[gw<n>]"),
        # Ports.
        (r"\b(port)([ =:]{1,2})\d{2,5}\b", r"\1\2<port>"),
        (r"(\blocalhost|\b\d{1,3}(?:\.\d{1,3}){3}|\[?::1?\]?):\d{2,5}\b", r"\1:<port>"),
        # Hosts with reassigned addresses: in a private network, in a cluster.
        (
            r"\b(?:10\.\d{1,3}|172\.(?:1[6-9]|2\d|3[01])|192\.168)(?:\.\d{1,3}){2}(?=:<port>)",
            "<host>",
        ),
        (r"\bip(?:-\d{1,3}){4}\b", "<host>"),
        (r"(?<=<hex>)-[a-z0-9]{5}\b", "-<id>"),
        # Requests. A pattern above may have masked the id already.
        (
            r"\b((?:request|req|trace|span|correlation|session)[-_ ]?id[\"']?[ =:#]{1,3}[\"']?)"
            r"(?:<\w{1,8}>|(?=[a-z_-]{0,80}\d)[\w-]{4,80})",
            r"\1<id>",
        ),
        (r"\b(req|request|trace|evt|msg)_(?=[a-z]{0,64}\d)[a-z0-9]{8,64}\b", r"\1_<id>"),
        # Sizes of memory. A small number of bytes may be a compared value, and stays.
        (r"\b\d+(?:\.\d+)? ?(?:[kmgt]i?b)\b|\b\d+(?-i:[KMG])\b|\b\d{5,} ?bytes\b", "<size>"),
        # Counters: progress, attempts, passed tests. The number of failures stays.
        (r"\[\s?\d{1,3}%\]|\[\d+/\d+\]|^\(\d+/\d+\)|\(\d+/\d+\)$", "<count>"),
        (r"^\d{1,3}% ?[|█#=> -].*|\b\d+(?:\.\d+)? ?it/s\b", "<count>"),
        (
            r"\b((?:attempts?|retry|retrying|retries|try|iteration|repeats?|repeated)"
            r"(?:[ _]?(?:count|number))?[\"']?[ =:#(]{1,3})\d+(?: ?(?:/|of) ?\d+)?\b",
            r"\1<n>",
        ),
        (r"\b\d+(?:st|nd|rd|th) (attempt|try|retry|time)\b", r"<n>th \1"),
        (r"\b(seen|tried|occurred|happened|checked|polled|asked) \d+ times\b", r"\1 <n> times"),
        # A pattern above may have masked a seed as a time or an id.
        (r"\b(seed[ =:#(]{1,3})(?:\d+|<time>|<id>)", r"\1<n>"),
        (
            r"\b\d+ (passed|passing|total|skipped|deselected|filtered out|warning)(?:s)?\b",
            r"<n> \1",
        ),
        (r"\b(collected|ran|running) \d+ (item|test)s?\b", r"\1 <n> \2"),
        (r"(^|\.py )(?-i:[.FEsxX]+)(?= ?<count>$|$)", r"\1<count>"),
    )
)

_TEMP_PATHS = re.compile(
    rf"{_FIRST_PART}(?:(?:/private)?/(?:tmp|var/tmp|var/folders|dev/shm|run/user/\d+)(?:/|\b)"
    r"|[A-Za-z]:[/\\]+(?:Users[/\\]+[^\s/\\]+[/\\]+AppData[/\\]+Local[/\\]+|Windows[/\\]+)?(?i:te?mp)\b[/\\]*"
    rf"|pytest-of-[\w.-]+[/\\]){_PATH_TAIL}"
)


def error_signature(command: str, stderr: str) -> str:
    """Return the signature of a failure: equal for the same failure, different for any other."""
    is_cacheable = len(command) + len(stderr) <= CACHED_CHARS_MAX
    return (_cached_signature if is_cacheable else _compute_signature)(command, stderr)


@functools.lru_cache(maxsize=1_024)
def _cached_signature(command: str, stderr: str) -> str:
    """Cache signatures: a stuck agent reports the same failure again and again."""
    return _compute_signature(command, stderr)


def _compute_signature(command: str, stderr: str) -> str:
    masked_command = _mask_line(_strip_colours(command[:COMMAND_CHARS]), COMMAND_MASKS)
    lines = _meaningful_lines(stderr)
    chosen_lines = _choose_lines(lines)
    main_line = _mask_line(_most_telling_line(lines), MASKS) or "no error output"
    # A separator that no line can contain keeps "a", "b" and "a b" apart.
    digest = hashlib.sha256("\n".join((masked_command, *chosen_lines)).encode()).hexdigest()[
        :HASH_CHARS
    ]
    return (
        f"{_cut(masked_command, DISPLAY_COMMAND_CHARS)} | "
        f"{_cut(main_line, DISPLAY_LINE_CHARS)} | #{digest}"
    )


def first_error_line(stderr: str) -> str:
    """Return the most telling line for a person, unmasked; empty if there is none."""
    return _cut(
        _SPACE.sub(" ", _most_telling_line(_meaningful_lines(stderr))).strip(), FIRST_ERROR_CHARS
    )


def _meaningful_lines(stderr: str) -> list[str]:
    """Return the lines of head and tail with a letter or digit, indentation included."""
    if len(stderr) <= HEAD_CHARS + TAIL_CHARS:
        raw = _strip_colours(stderr).split("\n")
    else:
        # The lines that the window cuts through are dropped, unless there are no others.
        head = _strip_colours(stderr[:HEAD_CHARS]).split("\n")
        tail = _strip_colours(stderr[-TAIL_CHARS:]).split("\n")
        raw = (head[:-1] or head) + (tail[1:] or tail)
    lines = (_cut_raw_line(line.rstrip("\r").rpartition("\r")[2]) for line in raw)
    return [_CONTROL.sub("", line) for line in lines if _MEANING.search(line)]


def _strip_colours(text: str) -> str:
    """Remove colours; a lone surrogate, which no store can write, becomes a question mark."""
    return _ANSI.sub("", text).encode("utf-8", "replace").decode("utf-8")


def _choose_lines(lines: list[str]) -> list[str]:
    """Return the masked lines that make the signature."""
    chosen_lines: list[str] = []
    taken = 0
    for line in lines[:SCAN_LINES_MAX]:
        if len(chosen_lines) == LINES_MAX:
            break
        taken += 1
        _append_masked(chosen_lines, line)
    rest = lines[taken:]
    error_lines = _error_lines(rest) or rest[-1:]
    for line in (
        error_lines
        if len(error_lines) <= 2 * ERROR_LINES_MAX
        else (error_lines[:ERROR_LINES_MAX] + error_lines[-ERROR_LINES_MAX:])
    ):
        _append_masked(chosen_lines, line)
    exception_line = _exception_line(lines)
    if exception_line:
        _append_masked(chosen_lines, exception_line)
    return chosen_lines


def _append_masked(chosen_lines: list[str], line: str) -> None:
    masked = _mask_line(line, MASKS)
    if masked and masked not in chosen_lines:
        chosen_lines.append(masked)


def _error_lines(lines: list[str]) -> list[str]:
    """Return the lines that speak of an error, without the source lines of Python's frames."""
    return [
        line
        for before, line in zip(["", *lines], lines, strict=False)
        if _ERROR.search(line) and not before.lstrip().startswith(_FRAME)
    ]


def _most_telling_line(lines: list[str]) -> str:
    """Return the line that says most: what pytest explains, what was raised, the first error."""
    pytest_lines = (line[1:] for line in lines if _PYTEST_ERROR.match(line))
    main_line = next(pytest_lines, "") or _exception_line(lines)
    return main_line or "".join(_error_lines(lines)[:1] or lines[:1])


def _exception_line(lines: list[str]) -> str:
    """Return the line after the frames of the last Python traceback: the exception itself."""
    for index in range(len(lines) - 1, -1, -1):
        if lines[index].startswith(_TRACEBACK):
            return next((line for line in lines[index + 1 :] if not line[0].isspace()), "")
    return ""


def _mask_line(line: str, masks: tuple[tuple[re.Pattern[str], str], ...]) -> str:
    """Return the line without values that differ between attempts."""
    line = _SPACE.sub(" ", _CONTROL.sub("", line)).strip()
    if line.startswith(("===", "---", "___", "***")):
        # A ruler's length depends on the title and the terminal.
        line = line.strip("=-_* ")
    line = _TEMP_PATHS.sub(_mask_temp_path, line)
    for pattern, mask in masks:
        line = pattern.sub(mask, line)
    return line[:LINE_CHARS].rstrip()


def _cut_raw_line(line: str) -> str:
    """Cut a raw line at a word's end: half a time or address would not be masked."""
    if len(line) <= RAW_LINE_CHARS:
        return line
    space = line.rfind(" ", RAW_LINE_CHARS - WORD_CHARS, RAW_LINE_CHARS)
    return line[: space if space > 0 else RAW_LINE_CHARS]


def _cut(text: str, chars: int) -> str:
    return text if len(text) <= chars else text[: chars - 1].rstrip() + "…"
