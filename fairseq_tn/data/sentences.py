"""Splitting paragraphs into sentences by rule, for alphabets with capitals, without, and for Chinese and Japanese."""

import re

_OPENERS = "\"'“‘«„‹([{¿¡「『《（【"
_CLOSERS = "\"'”’»›)\\]}」』》）】"

# a full stop of Chinese and Japanese ends a sentence wherever it stands, others only before a blank
_BOUNDARY = re.compile(
    rf"[。！？｡]+[{_CLOSERS}]*\s*(?=\S)"
    rf"|(?:[.!?…؟۔।॥]+)(?:[{_CLOSERS}]*)(?=\s+\S)"
)
_WORD_BEFORE = re.compile(rf"[^\s{re.escape(_OPENERS)}—–/]*\Z")
_ACRONYM = re.compile(r"(?:[^\W\d_]\.){2,}\Z")
_FIRST_WORD = re.compile(r"[^\W\d_]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# what stands before a name or a number and so never ends a sentence
_ALWAYS_FOLLOWED = _words(
    "Mr Mrs Ms Messrs Brig Mme Mlle Dr Prof Sra St Ste Ss Gen Col Maj Capt Cpt Lt Cmdr Adm Sgt Cpl Pvt Rev Hon Pres "
    "Gov Sen Rep Amb Sec Supt Fr Msgr Mt Ft Pt vs v viz cf eg ie e.g i.e c ca circa fl approx esp incl nee aka "
    "Op op Nr Hr Fra bzw z.B d.h u.a ggf sog vgl p.ej"
)
# before a number only
_BEFORE_NUMBER = _words(
    "No Nos no nos Nr nr Vol Vols vol vols p pp Pp P Fig Figs fig figs Eq Eqs eq Ch ch Chap chap Sec sec Art art "
    "Ex ex ed eds lit ll n b d r m est Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Abb Abs Bd S"
)
# these may end a sentence: what follows decides
_MAYBE_LAST = _words(
    "etc Inc Ltd Co Corp Cos Bros LLC Jr Sr Esq Ph.D M.D B.A M.A B.Sc M.Sc al ff a.m p.m A.M P.M B.C A.D B.C.E C.E "
    "dept Dept Univ Ave Blvd Rd Dist Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Assn Natl Intl Mfg Bldg "
    "ed eds trans rev est Vol No usw Tel"
)
_STARTERS = _words(
    "A After All Also Although An And Another As At Because Before Between Both But By Despite Due During Each Early "
    "Even Every Few For From He Her Here His How However I If In Instead It Its Later Many Meanwhile More Moreover "
    "Most My Near Nevertheless No Not Of On Once One Only Other Others Our Over Several She Since So Some Such Than "
    "That The Their Then There Therefore These They This Those Though Through Throughout Thus To Today Two Under "
    "Unlike Until Upon We What When Where Whereas Whether Which While Who Why With Within Without Yet You"
)


def split_sentences(text: str) -> list[str]:
    """Split a paragraph into its sentences, without leading and trailing blanks; no text is lost.

    A sentence ends at ``. ! ? …`` (with closing quotes and brackets) before a blank and a word that is not in
    lower case, or at ``。！？`` anywhere. Not at abbreviations, initials ("J. S. Bach"), decimals, "No. 5", nor
    at "U.S.", "etc." and the like unless a common first word follows.
    """
    sentences = []
    start = 0
    for match in _BOUNDARY.finditer(text):
        end = match.end()
        if text[match.start()] not in "。！？｡" and not _ends_sentence(text, start, match.start(), end):
            continue
        sentence = text[start:end].strip()
        if sentence:
            sentences.append(sentence)
        start = end
    rest = text[start:].strip()
    if rest:
        sentences.append(rest)
    return sentences


def _ends_sentence(text: str, start: int, stop: int, end: int) -> bool:
    """Whether the sentence from ``start`` ends with the stop mark at ``stop``, whose closers end at ``end``."""
    following = text[end : end + 80].lstrip()
    head = following.lstrip(_OPENERS)
    if not head or head[0].islower() or (head[0] in ",;:–—-…" and head[:2] != "--"):
        return False
    mark = text[stop:end]
    if mark[0] != "." or (len(mark) > 1 and mark[1] == "."):
        return True
    before = _WORD_BEFORE.search(text, max(start, stop - 40), stop)
    word = before.group() if before else ""
    if not word:
        return True
    if word in _ALWAYS_FOLLOWED:
        return False
    if word in _BEFORE_NUMBER and head[0].isdigit():
        return False
    match = _FIRST_WORD.match(head)
    first = match.group() if match else ""
    closed = len(mark) > 1
    if len(word) == 1 and word.isupper():
        # an initial, as against "World War I. Germany" and "vitamin C. The"
        numeral = word == "I" and _after_name(text, start, stop - 1)
        return closed or numeral or (first in _STARTERS and len(first) > 1)
    if word in _MAYBE_LAST or _ACRONYM.search(word + "."):
        return closed or first in _STARTERS
    return True


def _after_name(text: str, start: int, stop: int) -> bool:
    """Whether the word before ``stop`` starts with a capital, as in "World War I"."""
    words = text[max(start, stop - 40) : stop].split()
    return bool(words) and words[-1][:1].isupper() and len(words[-1]) > 2
