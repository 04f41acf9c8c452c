"""Work in tasks: order, progress, errors, merging, and the Python that runs it."""
import ast
import logging
import os
import subprocess
import sys
import zipfile

import pytest

from rmqha.pipeline import progress
from rmqha.pipeline.format_options import PipelineError
from rmqha.pipeline.progress import merge_tasks, run_tasks
from rmqha.pipeline.session import register, use_this_python
from tests.support.sources import ROOT, modules

# Files in which a session of Spark Connect can't occur, or is checked for before.
CLASSIC_ONLY = {"rmqha/pipeline/session.py", "rmqha/pipeline/progress.py", "rmqha/pipeline/job_command.py",
                "rmqha/pipeline/spark_start.py", "rmqha/pipeline/archive/archive.py",
                "rmqha/pipeline/archive/archive_files.py"}
NOT_ON_CONNECT = {"sparkContext", "rdd", "toLocalIterator", "_jvm", "_jsc", "_jdf", "_jsparkSession",
                  "foreachPartition"}


def test_results_are_in_the_order_of_the_items_with_any_number_of_tasks(spark):
    assert run_tasks(spark, lambda item: item * 2, []) == []
    assert run_tasks(spark, lambda item: item * 2, "abcde") == ["aa", "bb", "cc", "dd", "ee"]
    assert run_tasks(spark, lambda item: (item, os.getpid()), range(50), most_tasks=3)[49][0] == 49


def test_imported_objects_of_a_worker_are_not_collected_after_each_task(spark):
    def counts(_item):
        import gc
        return gc.get_freeze_count(), len(gc.get_objects())
    for frozen, looked_at in run_tasks(spark, counts, range(12))[6:]:  # at most two workers have started
        assert frozen > 20_000 > 5_000 > looked_at


_SPARKS = {"DataSourceReader", "DataSourceStreamReader", "DataSourceArrowWriter", "DataSourceStreamArrowWriter"}


def _bases(node):
    return {base.id for base in node.bases if isinstance(base, ast.Name)}


def _home(classes, name):
    """Return the module of the method that Spark calls in a task, which may be inherited."""
    path, node = classes[name]
    if any(isinstance(each, ast.FunctionDef) and each.name in ("read", "write") for each in node.body):
        return path
    return next(filter(None, (_home(classes, base) for base in _bases(node) if base in classes)), None)


def test_all_tasks_begin_by_settling_their_worker():
    mapped = {path for path, tree in modules().items() if path.startswith("rmqha/pipeline/")
              for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "mapInArrow"}
    assert mapped == {"rmqha/pipeline/progress.py"}
    settled = {path for path, tree in modules().items() for node in ast.walk(tree)
               if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "settle"}
    classes = {node.name: (path, node) for path, tree in modules().items() for node in ast.walk(tree)
               if isinstance(node, ast.ClassDef) and path.startswith("rmqha/pipeline/")}
    entries = {_home(classes, name) for name, (_, node) in classes.items() if _bases(node) & _SPARKS}
    assert entries and entries | mapped == settled


def test_progress_reaches_the_total_and_never_decreases(spark):
    import time
    heard = []
    run_tasks(spark, lambda item: time.sleep(0.4), range(6), lambda done, total: heard.append((done, total)))
    assert heard == sorted(heard) and heard[-1] == (6, 6) and len(heard) > 1
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


@pytest.mark.parametrize("merged_by_driver", [100, 5])
def test_merged_results_are_the_same_with_either_merger(spark, monkeypatch, merged_by_driver):
    monkeypatch.setattr(progress, "MERGED_BY_DRIVER", merged_by_driver)
    monkeypatch.setattr(progress, "MERGERS", 2)
    assert merge_tasks(spark, lambda item: {item}, [], set.union) is None
    assert merge_tasks(spark, lambda item: {item}, range(20), set.union, most_tasks=7) == set(range(20))


@pytest.mark.parametrize("merged_by_driver", [100, 5])
def test_first_error_of_a_task_is_raised_unchanged(spark, monkeypatch, merged_by_driver):
    monkeypatch.setattr(progress, "MERGED_BY_DRIVER", merged_by_driver)

    def work(item):
        if item in (3, 7):
            raise PipelineError(f"no {item}")
        return item
    with pytest.raises(PipelineError, match="^no 3$"):
        run_tasks(spark, work, range(10))
    with pytest.raises(PipelineError, match="^no 3$"):
        merge_tasks(spark, work, range(10), max)


def test_unusable_python_is_named(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python3")
    with pytest.raises(PipelineError, match="set PYSPARK_PYTHON to it before the session is created.*Cannot run"):
        run_tasks(spark, lambda item: item, range(2))


def test_tasks_of_a_session_without_pyspark_python_run_in_this_one(spark, monkeypatch):
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python3")
    use_this_python(spark)
    assert spark.sparkContext.pythonExec == "/nowhere/python3"  # the fixture has set PYSPARK_PYTHON
    monkeypatch.delenv("PYSPARK_PYTHON")
    register(spark)
    assert spark.sparkContext.pythonExec == sys.executable
    assert run_tasks(spark, lambda item: sys.executable, range(1)) == [sys.executable]


def test_slower_tasks_cause_a_warning(spark, caplog, monkeypatch):
    monkeypatch.setattr(progress, "_rows", lambda table: iter([(0, progress._Told(1, None, compiled=False))]))
    monkeypatch.setattr(progress.bulk, "is_compiled", lambda: True)
    with caplog.at_level(logging.WARNING):
        assert run_tasks(spark, lambda item: item, range(1)) == [1]
    assert "--py-files" in caplog.text


def test_rmqha_works_from_a_zip_and_reports_that_it_is_slower(tmp_path):
    with zipfile.ZipFile(tmp_path / "rmqha.zip", "w") as archive:
        for path in (ROOT / "rmqha").rglob("*"):
            if path.suffix in (".py", ".so", ".json"):
                archive.write(path, path.relative_to(ROOT))
    code = ("import rmqha.pipeline.jobs.audit, rmqha.pipeline.jobs.rebuild, rmqha.pipeline.log.commit_log_source\n"
            "from rmqha.native import kernels\nprint(rmqha.__file__, kernels.told())")
    done = subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path / 'rmqha.zip')!r})\n"
                           + code], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.startswith(str(tmp_path / "rmqha.zip")) and "rmqha is in a zip file" in done.stdout


def test_jobs_and_formats_use_nothing_that_spark_connect_lacks():
    wrong = [f"{path}:{node.lineno} {node.attr}" for path, tree in modules().items()
             if path.startswith("rmqha/pipeline/") and path not in CLASSIC_ONLY
             for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in NOT_ON_CONNECT]
    assert not wrong, "\n".join(wrong)
