"""The archive keeps what it said it kept, whatever a kill, a full disk or a bad block does to its files."""

import random
from pathlib import Path

import pytest

from goodput_collector.archive import Archive, Position, Record, archive_id, read_groups
from goodput_collector.errors import ArchiveError

START = Position()


def record(number: int, size: int = 40) -> Record:
    data = random.Random(number).randbytes(size)
    return Record(name=f"s{number % 3}", offset_bytes=number, end_bytes=number + size, data=data)


def fill(archive: Archive, groups: int) -> list[tuple[Record, ...]]:
    made = [tuple(record(3 * group + index) for index in range(3)) for group in range(groups)]
    for records in made:
        archive.append(records)
    return made


def held(directory: Path, after: Position = START) -> list[tuple[Record, ...]]:
    return [group.records for group in read_groups(directory, after)]


def test_groups_come_back_in_order_from_any_position(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a", file_max_bytes=600)
    made = fill(archive, 8)
    archive.close()
    assert len(list((tmp_path / "a").glob("*.archive"))) > 2
    assert held(tmp_path / "a") == made
    ends = [group.end for group in read_groups(tmp_path / "a")]
    for index, end in enumerate(ends):
        assert held(tmp_path / "a", end) == made[index + 1 :]


def test_a_frame_cut_anywhere_is_removed_and_the_next_one_stands_in_its_place(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    made = fill(archive, 2)
    archive.close()
    file = tmp_path / "a" / "000000.archive"
    whole = file.read_bytes()
    ends = [group.end.byte for group in read_groups(tmp_path / "a")]
    for cut in range(ends[0], ends[1]):
        file.write_bytes(whole[:cut])
        again = Archive(tmp_path / "a")
        assert again.end.byte == ends[0]
        more = record(99)
        again.append([more])
        again.close()
        assert held(tmp_path / "a") == [made[0], (more,)]


def test_a_file_cut_in_its_first_line_is_begun_again(tmp_path: Path) -> None:
    Archive(tmp_path / "a").close()
    file = tmp_path / "a" / "000000.archive"
    head = file.read_bytes()
    for cut in range(len(head)):
        file.write_bytes(head[:cut])
        archive = Archive(tmp_path / "a")
        archive.append([record(1)])
        archive.close()
        assert held(tmp_path / "a") == [(record(1),)]
        file.unlink()


def test_damage_inside_costs_its_own_frame_alone_and_is_told(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    made = fill(archive, 3)
    archive.close()
    file = tmp_path / "a" / "000000.archive"
    ends = [group.end.byte for group in read_groups(tmp_path / "a")]
    data = bytearray(file.read_bytes())
    data[(ends[0] + ends[1]) // 2] ^= 0xFF
    file.write_bytes(data)
    groups = list(read_groups(tmp_path / "a"))
    assert [group.records for group in groups] == [made[0], made[2]]
    assert groups[1].damaged_bytes == ends[1] - ends[0]
    # The writer goes on behind it all.
    again = Archive(tmp_path / "a")
    assert again.end.byte == ends[2]
    again.close()
    # Even with its first line gone, a file keeps what else it holds.
    data[:20] = bytes(20)
    file.write_bytes(data)
    Archive(tmp_path / "a").close()
    assert held(tmp_path / "a") == [made[0], made[2]]


def test_a_refused_write_leaves_nothing_and_the_next_one_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(tmp_path / "a")
    archive.append([record(1)])

    def refuse(fd: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fdatasync", refuse)
        with pytest.raises(OSError, match="No space"):
            archive.append([record(2)])
    archive.append([record(3)])
    archive.close()
    assert held(tmp_path / "a") == [(record(1),), (record(3),)]


def test_an_archive_has_one_writer_and_one_name(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a")
    with pytest.raises(ArchiveError, match=r"in use by another process \(pid \d+\)"):
        Archive(tmp_path / "a")
    archive.close()
    again = Archive(tmp_path / "a")
    again.close()
    assert again.id == archive.id == archive_id(tmp_path / "a")
    other = Archive(tmp_path / "b")
    other.close()
    assert other.id != again.id
    (tmp_path / "b" / "000000.archive").write_text('{"goodput_archive": 2, "id": "x"}\n')
    with pytest.raises(ArchiveError, match="later version"):
        Archive(tmp_path / "b")
