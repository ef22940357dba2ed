import pytest
from typer.testing import CliRunner

from fedmap.cli.flower import unused
from fedmap.cli.main import app
from fedmap.data import read_folder
from fedmap.errors import FedmapError
from fedmap.flower import demo


def test_every_site_misses_classes_and_no_two_the_same():
    federation = demo.incomplete(demo.images(), 4)
    held = {tuple(row) for row in federation.observed.tolist()}
    assert len(held) == 4
    assert not any(all(row) for row in held)


def test_the_sites_have_every_image_once(tmp_path):
    dataset = demo.images().smaller(200)
    places = demo.lay_out(demo.incomplete(dataset, 3), tmp_path)
    assert sum(site.samples for site in places) == len(dataset.train_y)
    assert sum(len(list(site.data.rglob("*.png"))) for site in places) == len(dataset.train_y)


def test_what_a_site_misses_has_no_folder_and_the_rest_reads_as_it_was(tmp_path):
    dataset = demo.images().smaller(200)
    (first, *_) = demo.lay_out(demo.incomplete(dataset, 3), tmp_path)
    found = read_folder(first.data)
    assert set(found.classes) == set(dataset.classes) - set(first.missing)
    assert (found.train_x.shape[1:], len(found.train_y)) == (dataset.shape, first.samples)
    kept = {image.numpy().tobytes() for image in dataset.train_x}
    assert all(image.numpy().tobytes() in kept for image in found.train_x)


def test_each_new_round_is_told_once(tmp_path):
    told: list[str] = []
    rounds = demo.Rounds(tmp_path, 2, told.append)
    rounds()
    for _ in range(2):
        with open(tmp_path / "rounds.jsonl", "a") as file:
            file.write("{}\n")
        rounds()
        rounds()
    assert told == ["round 1 of 2 is done", "round 2 of 2 is done"]


def test_a_line_that_is_being_written_waits(tmp_path):
    told: list[str] = []
    (tmp_path / "rounds.jsonl").write_text('{"round": 1}\n{"rou')
    demo.Rounds(tmp_path, 2, told.append)()
    assert told == ["round 1 of 2 is done"]


@pytest.mark.parametrize("sites", [1, 11])
def test_a_number_of_sites_that_is_not_possible_is_refused(tmp_path, sites):
    with pytest.raises(FedmapError, match=f"sites is {sites}; allowed: 2 to 10"):
        demo.run_demo(tmp_path / "new", sites, {}, print)


def test_a_folder_with_files_is_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("x")
    with pytest.raises(FedmapError, match="is not empty"):
        demo.run_demo(tmp_path, 3, {}, print)


def test_a_folder_that_is_taken_gets_a_number(tmp_path):
    for _ in range(3):
        unused(tmp_path / "demo").mkdir()
    assert {path.name for path in tmp_path.iterdir()} == {"demo", "demo-2", "demo-3"}


def test_without_flower_one_sentence_says_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setattr("fedmap.cli.flower.find_spec", lambda name: None)
    monkeypatch.chdir(tmp_path)
    commands = (["keys", "k", "--sites", "oslo"], ["app", "a"], ["demo"])
    said = [CliRunner().invoke(app, ["flower", *words]).exception for words in commands]
    assert {str(one) for one in said} == {
        "Flower is not installed; get it with: pip install 'fedmap[flower]'"
    }


def test_the_keys_command_says_where_each_file_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["flower", "keys", "k", "--sites", "oslo"])
    lines = {line.split()[0]: line.strip() for line in done.output.splitlines()}
    assert lines["sites/oslo.key"].endswith("oslo alone")
    assert lines["ca.key"].endswith("keep it offline")
