"""Tables of Markdown and LaTeX, and XML, as plain values."""

import pytest

from fedprivacy.audit.imports.markup import tables_in, xml_of
from fedprivacy.errors import ConversionError

MARKDOWN = """
| run | `noise` | delta |
|:---|---:|---|
| **a** | 1.5 | $10^{-5}$ |
| b | - | 2x10^-6 |

no row
"""
LATEX = r"""
\begin{tabular}{@{}lr@{}} \toprule
Noise $\sigma$ & $\varepsilon$ \\ \cmidrule(lr){1-2}
\textbf{0.5} & 1{,}5 \\
2 & 91\% \\ \bottomrule
\end{tabular}
"""


def test_the_rows_of_whole_tables_are_read():
    (table,) = tables_in(MARKDOWN)
    assert table == [
        {"run": "a", "noise": 1.5, "delta": 1e-5},
        {"run": "b", "noise": "-", "delta": 2e-6},
    ]
    (table,) = tables_in(LATEX)
    assert [row["Noise"] for row in table] == [0.5, 2]
    assert [row["epsilon"] for row in table] == ["1{,}5", "91%"]


@pytest.mark.parametrize(
    "text",
    [
        "a | b\nc | d",
        "| a | b |\n|---|---|\n| 1 |",
        "| a | a |\n|---|---|\n| 1 | 2 |",
        r"\begin{tabular}{ll} & \multicolumn{2}{c}{noise} \\ a & 1 & 2 \\ \end{tabular}",
        r"\begin{tabular}{ll} a & b \\",
    ],
)
def test_other_text_has_no_table(text):
    assert tables_in(text) == []


def test_elements_and_attributes_of_xml_are_fields():
    text = b"<a xmlns='urn:x' on='true'><b>1</b><c k='2'>3</c><d>4</d><d>5</d></a>"
    assert xml_of(text, "a.xml") == {
        "a": {"on": "true", "b": "1", "c": {"k": "2", "value": "3"}, "d": ["4", "5"]}
    }


@pytest.mark.parametrize(
    "text", ["<a>", "<!DOCTYPE a><a/>", "<a>" * 70 + "</a>" * 70, "<a/>" * 2, "<a b=1/>"]
)
def test_xml_that_is_not_read_is_refused_in_one_line(text):
    with pytest.raises(ConversionError) as caught:
        xml_of(text.encode(), "a.xml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "piece", ["|", "|-", "\\begin{tabular}", "&", "{", "\\textbf{", "\\hline{", "abc "]
)
def test_a_long_text_takes_a_bounded_number_of_tables(piece):
    assert tables_in(f"a\n{piece * 100_000}") == []
