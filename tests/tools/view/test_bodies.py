"""Bodies for people: no server."""
from rmqha.tools.view.questions import MAX_HEX_BYTES, body_view, hex_dump


def test_text_is_text_and_bytes_are_dumped():
    told = body_view("größer\n\ttea <b>".encode())
    assert told.text == "größer\n\ttea <b>" and not told.is_cut and told.size == 17
    assert body_view(b"\x00\x01\xff").text is None
    assert body_view(b"bell \x07").text is None  # steers a terminal
    assert body_view("\u202eevil".encode()).text is None  # turns the reading direction


def test_a_large_body_is_cut_also_within_a_character():
    told = body_view("ä".encode() * 100, max_bytes=51)
    assert told.text == "ä" * 25 and told.is_cut and told.size == 200
    binary = body_view(b"\xff" * 100_000)
    assert binary.text is None and binary.is_cut and len(binary.hex.splitlines()) == MAX_HEX_BYTES // 16


def test_broken_utf8_at_the_end_of_a_whole_body_is_no_text():
    assert body_view("ä".encode()[:1]).text is None


def test_a_dump_has_offsets_bytes_and_letters():
    assert hex_dump(b"0123456789abcdef\n") == (
        "00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef\n"
        "00000010  0a" + " " * 45 + "  .")
    assert hex_dump(b"") == ""
