"""Named sets of attributes in a file "MFEM mesh v1.3": the names of a mesh.

A section has the number of sets, and for each set its name in double quotes, the number of its
attributes, and the attributes. Line ends between them have no meaning.
"""

from collections.abc import Iterator, Mapping

from femops_meshes.errors import MeshArgumentError
from femops_meshes.formats.scanner import Scanner, printable, shorten
from femops_meshes.names import Names

INSIDE, OUTSIDE = "attribute_sets", "bdr_attribute_sets"
"""The sections of elements and of the boundary."""


def read_sets(scanner: Scanner, section: str) -> dict[str, tuple[int, ...]]:
    """Read {name: attributes} from a section. Return {} if another section comes next."""
    if scanner.peek() != section:
        return {}
    scanner.keyword(section)
    what = f"the number of sets in {section}"
    count = scanner.integer(scanner.read(what), what, 0)
    scanner.room(2 * count, f"{count} sets")
    sets: dict[str, tuple[int, ...]] = {}
    for number in range(count):
        name, words = _name(scanner, f"set {number + 1} of {count} in {section}")
        if not name or name in sets:
            raise scanner.fail(f'"{shorten(name)}" names two sets, or none: name each once')
        sets[name] = _attributes(scanner, words, f'the set "{shorten(name)}"')
    return sets


def _name(scanner: Scanner, what: str) -> tuple[str, list[str]]:
    """Name of a set, and the words that follow it on its line."""
    text = scanner.read(what)
    first, last = text.find('"'), text.rfind('"')
    if first < 0:
        name, _, rest = text.partition(" ")
        return printable(name), rest.split()
    if first > 0 or last == first:
        raise scanner.fail(
            f'{what} should begin with a name in double quotes, got "{shorten(text)}"'
        )
    return printable(text[1:last]), text[last + 1 :].split()


def _attributes(scanner: Scanner, words: list[str], what: str) -> tuple[int, ...]:
    size = f"the number of attributes in {what}"
    words = words or scanner.integer_row(size)
    count = scanner.integer(words[0], size, 0)
    scanner.room(count - len(words) + 1, f"{count} attributes of {what}")
    while len(words) <= count:
        words += scanner.integer_row(f"attribute {len(words)} of {count} of {what}")
    if len(words) > count + 1:
        raise scanner.fail(f"{what} has more attributes than the {count} that it announces")
    return tuple(scanner.integer(word, f"an attribute of {what}", 1) for word in words[1:])


def check_writable_names(*names: Names) -> None:
    """Raise if a name cannot be written to a file."""
    for name in (name for group in names for name in group):
        if '"' in name or printable(name) != name:
            raise MeshArgumentError(
                f"the name {name!r} cannot be written to MFEM's format: it may hold no double "
                "quote and no character that cannot be printed; give another by mesh.with_names"
            )


def written_sets(section: str, names: Mapping[str, tuple[int, ...]]) -> Iterator[str]:
    """Yield the text of a section, with line ends as MFEM writes them."""
    yield f"\n{section}\n{len(names)}\n"
    for name, numbers in names.items():
        yield f'"{name}"\n{len(numbers)}\n{" ".join(map(str, numbers))}\n'
