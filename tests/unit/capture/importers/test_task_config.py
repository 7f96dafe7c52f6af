"""What of a task's configuration is compared, and what another version or process writes otherwise."""

from validate.capture.importers._task_config import task_config


def test_what_makes_prompts_and_scores_is_kept() -> None:
    """Paths and empty values are not; keys in order, as JSON."""
    assert task_config(
        {
            "metric_list": [{"metric": "acc", "ignore_case": True}],
            "doc_to_text": "{{q}}",
            "description": "",
            "gen_prefix": None,
            "dataset_kwargs": {"data_files": "/home/x"},
        }
    ) == {
        "doc_to_text": '"{{q}}"',
        "metric_list": '[{"ignore_case": true, "metric": "acc"}]',
    }


def test_addresses_of_functions_are_not_compared() -> None:
    """lm-eval writes a function that it has no source of with its address."""
    one, other = (
        task_config({"doc_to_text": f"<function f at 0x7f{digits}>"}) for digits in ("00aa", "11bb")
    )

    assert one == other == {"doc_to_text": '"<function f at 0x>"'}


def test_few_shot_settings_that_repeat_the_task_are_not_compared() -> None:
    """Newer versions of lm-eval copy them into ``fewshot_config``; another sampler stays."""
    newer = {"sampler": "default", "doc_to_text": "{{q}}", "split": None}
    older = {"doc_to_text": "{{q}}"}

    assert task_config(older | {"fewshot_config": newer}) == task_config(older)
    assert task_config(older | {"fewshot_config": {"sampler": "first_n"}}) == {
        "doc_to_text": '"{{q}}"',
        "fewshot_config": '{"sampler": "first_n"}',
    }
