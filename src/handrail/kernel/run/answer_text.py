"""Read a person's free text as an answer (R4.2): it approves, revises, or is ambiguous.

Rules
1. A text approves only if every word in it is an approval or padding, and at least one is an
   approval. Nothing else ever approves: not a broken text, not a long one, not a question.
2. A text with any word outside this file's tables says something: it is a revision. The caller
   keeps its words as typed (R4.3); this file never returns text.
3. Every other text could mean either, or means nothing; the person is asked again. Asking again
   costs a moment, a wrong approval may cost what cannot be undone.

Theory: the text is cut to READ_CHARS_MAX and normalised (NFKD, case folded, invisible characters
removed). Its words, without accents, are looked up in PHRASES, the longest phrase first. In an
approval only space or ornament stands between the words: an accent or a symbol is neither.

    text                                   reads as    because
    OK. / **ok** / "Ok!" / ＯＫ / O.K.     approve     case, punctuation, emphasis, width aside
    looks good to me! / ok, thanks / 👍🏽   approve     approvals and padding only; `:+1:` is 👍
    go-ahead / ok... / yes, yes            approve     hyphens and dots are punctuation
    ok, but change the date                revise      adds an instruction
    no, use euros / wait for Bob           revise      says what to do instead
    42 / измени дату / {"decision": "no"}  revise      has words that are not in the table
    no / nope / cancel / wait / stop       ask again   reject, revise, or not yet?
    reject / no thanks / not approved      ask again   `reject` closes the run: it is a decision of
                                                       its own, never guessed from a text
    hm / maybe / not sure / k / y / +1     ask again   no clear yes
    yeah / great / perfect / ✅ / 👎       ask again   close, but not in the agreed list
    I approve this / that's fine / do it   ask again   a word more than the agreed list, and yet no
                                                       instruction that a planner could follow
    ok? / looks good?                      ask again   a question
    thanks / please                        ask again   padding alone
    "" / "..." / zero-width only           ask again   nothing
    ОК in Cyrillic, 0k, o̶k̶                 ask again   looks like an approval and is not the same
                                                       letters; as a revision it would be nonsense
    ~~ok~~ / > ok / [ ] ok / <ok> / {ok}   ask again   struck out, quoted, unticked, or markup
    ok with a bidirectional override       ask again   what is seen differs from what is read
    more than READ_CHARS_MAX of approvals  ask again   a malformed answer never approves

Not here: who may answer, whether the approval is still open, and the buttons' explicit decisions.
"""

import re
import unicodedata
from enum import StrEnum

READ_CHARS_MAX = 1_000


class AnswerIntent(StrEnum):
    """What a text means for the open approval."""

    APPROVE = "approve"
    REVISE = "revise"
    AMBIGUOUS = "ambiguous"


class _WordKind(StrEnum):
    """What one word or phrase contributes."""

    APPROVAL = "approval"
    PADDING = "padding"
    UNCLEAR = "unclear"
    OTHER = "other"


APPROVALS = (
    "ok",
    "okay",
    "yes",
    "yep",
    "sure",
    "fine",
    "approve",
    "approved",
    "lgtm",
    "looks good",
    "sounds good",
    "go ahead",
    "👍",
)
PADDING = ("please", "thanks", "thank you", "to me")

# Words that could mean either, near misses of an approval, and words that alone instruct nobody.
# Beside any word outside this file's tables they are part of a revision.
_UNCLEAR = """
    no nope nah not never none cancel cancelled canceled wait stop hold halt pause abort quit later
    reject rejected decline declined deny denied refuse refused disapprove disapproved unapproved
    hm hmm um umm uh er erm eh meh huh oh ah well maybe perhaps possibly probably depends unsure
    idk dunno know think guess why what who when how
    k kk okey yeah yea yup ya aye good great perfect excellent nice cool awesome wonderful agreed
    agree accept accepted accepts correct right done confirm confirmed confirms approves approval
    affirmative absolutely definitely certainly totally alright happy shipit ship merge thx ty
    cheers works thing problem worries sec second minute moment mind nevermind
    oui si ja jo da да нет nein non nej tak hai はい いいえ 好的
    i im me my we you it its this that thats is are am be was do does dont doesnt did didnt cant
    isnt wont cannot aint arent wasnt couldnt wouldnt shouldnt nay negative nok thumbsdown
    to the a an and or but so if of for on go ahead looks look sounds sound thank now yet
    just very really quite all both here there then with by from as side much many lot
    merci danke gracias grazie 谢谢
"""

PHRASES: dict[tuple[str, ...], _WordKind] = {
    **{(word,): _WordKind.UNCLEAR for word in _UNCLEAR.split()},
    **{tuple(phrase.split()): _WordKind.PADDING for phrase in PADDING},
    **{tuple(phrase.split()): _WordKind.APPROVAL for phrase in APPROVALS},
}
_PHRASE_WORDS_MAX = max(map(len, PHRASES))

# Zero-width characters, soft hyphen, direction marks and isolates, variation selectors: they do not
# change the visible text. Overrides (U+202D, U+202E) and tag characters are not among them.
_INVISIBLE = re.compile(
    r"[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202c\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff]"
)
_THUMB = re.compile("👍[\U0001f3fb-\U0001f3ff]?|:\\+1:|:thumbsup:")
_DOTTED_OK = re.compile(r"\bo\. ?k\b")
_APOSTROPHE = re.compile(r"(?<=[^\W\d_])['’ʼ](?=[^\W\d_])")
_WORD = re.compile(r"👍|[^\W_]+")
_SPACE_OR_WORD = re.compile(r"[\s👍]|[^\W_]")

# Punctuation that asks, or that belongs to markup and code: never ornament.
_MEANINGFUL_PUNCTUATION = frozenset("?¿؟‽⸮{}[]\\@#%")

# Letters of other scripts, and digits, that look like the Latin letters of the words above.
_LOOKALIKES = str.maketrans(
    "аеорсухкмтнгіјѕԁһ" + "ακορεινυτ" + "0135" + "ıɡ",
    "aeopcyxkmthrijsdh" + "akopeivut" + "oies" + "ig",
)


def classify_answer(text: str) -> AnswerIntent:
    """Classify a free text; in doubt it is ambiguous, and the approval stays open."""
    stripped = text.strip()
    normalized = _normalize(stripped[:READ_CHARS_MAX])
    kinds = _classify_words(_WORD.findall(_without_accents(normalized)))
    if _WordKind.OTHER in kinds:
        return AnswerIntent.REVISE
    clear = _WordKind.APPROVAL in kinds and _WordKind.UNCLEAR not in kinds
    if (
        clear
        and len(stripped) <= READ_CHARS_MAX
        and all(map(_is_ornament, _SPACE_OR_WORD.sub("", normalized)))
    ):
        return AnswerIntent.APPROVE
    return AnswerIntent.AMBIGUOUS


def _normalize(text: str) -> str:
    text = unicodedata.normalize("NFKD", _INVISIBLE.sub("", text)).casefold()
    text = _DOTTED_OK.sub("ok", _THUMB.sub("👍", text))
    return _APOSTROPHE.sub("", text)


def _without_accents(text: str) -> str:
    """Remove marks, so that scripts with vowel marks keep whole words; recompose Hangul."""
    return unicodedata.normalize(
        "NFC", "".join(mark for mark in text if not unicodedata.category(mark).startswith("M"))
    )


def _classify_words(words: list[str]) -> set[_WordKind]:
    """Look the words up, the longest phrase first: `to me` is padding, `to` and `me` are not."""
    kinds: set[_WordKind] = set()
    index = 0
    while index < len(words):
        for size in range(_PHRASE_WORDS_MAX, 0, -1):
            kind = PHRASES.get(tuple(words[index : index + size]))
            if kind is not None:
                kinds.add(kind)
                index += size
                break
        else:
            kinds.add(_classify_unlisted(words[index]))
            index += 1
    return kinds


def _classify_unlisted(word: str) -> _WordKind:
    """Distinguish a meaningful word from one letter, a look-alike and a drawn-out `nooo`."""
    skeleton = word if word.isdigit() else word.translate(_LOOKALIKES)
    squeezed = re.sub(r"(.)\1+", r"\1", skeleton)
    unclear = len(word) == 1 or (skeleton,) in PHRASES or (squeezed,) in PHRASES
    return _WordKind.UNCLEAR if unclear else _WordKind.OTHER


def _is_ornament(character: str) -> bool:
    """Whether a non-word, non-space character is ornament. Symbols, marks and controls are not."""
    if character in _MEANINGFUL_PUNCTUATION:
        return False
    return character == "`" or unicodedata.category(character).startswith("P")
