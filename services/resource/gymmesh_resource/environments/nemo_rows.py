"""Recognises rows of NeMo Gym that a different server of it judges, so that no row is judged
wrongly.

Many servers' rows have `expected_answer` and mean different things by it: an option's letter, a
point on a screen, a command. Two things distinguish them: `agent_ref`, whose name contains the
server's name, and keys that only some servers judge by. A row with neither is accepted unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from gymmesh_resource import Task, TaskInvalid

_SERVERS = """
    aalcr abstention arc_agi arena_judge asr_with_pc aviary bbq bigcodebench bird_sql blackjack
    browsecomp_advanced_harness bunsenbench_chemistry_mcq calendar circle_click circle_count
    citation_if code_fim code_gen competitive_coding_challenges conversational_tool_use_simulation
    critpt cvdp deepswe equivalence_llm_judge equivalence_rule ether0 evalplus
    example_multi_turn_gymnasium finance_agent_v2 finance_sec_search format_verification
    frontierscience_judge gdpval genrm_compare google_search gpqa_diamond graphwalks grl_sokoban
    grl_tetris gui_coordinate gymnasium hotpotqa_qa ifbench iheval image_tools imo_gradingbench
    imo_proofbench_judge indirect_prompt_injection instruction_following inverse_if
    jailbreak_detection labbench2_vlm lc_niah legal_agent_bench litmus_agent longmemeval
    longmt_eval math_advanced_calculations math_formal_lean math_proof_judgement
    math_with_autograder math_with_code math_with_judge mcqa mrcr multichallenge newton_bench
    ns_tools nvarc omniscience openair_congestion openenv over_refusal_detection physics_judge
    polymath proof_genselect proof_judge proof_verification ragtruth reasoning_gym rolemrc ruler
    ruler2 scicode simpleqa spartqa speed_bench spider2_lite string_match structeval
    structured_outputs swe_pivot swebench swerl_gen swerl_llm_judge tales tavily_search
    terminal_multi_harness terminus_judge text_to_sql toolsandbox ugphysics_judge verifif
    vlm_eval_kit wmt_translation workplace_assistant xlam_fc xstest
"""
# The longest first: `ruler2` is not `ruler`.
_NAMES = sorted(_SERVERS.split(), key=len, reverse=True)
_NAMED = re.compile(rf"(?:^|_)({'|'.join(_NAMES)})(?=_|$)")

# By key of the row, with a dot for one within an object: what judges rows that have it.
JUDGED_OTHERWISE: Mapping[str, str] = {
    "options": "the environment mcqa",
    "grading_mode": "the environment mcqa",
    "extraction_mode": "the environment string_match",
    "rubric": "the environment llm_judge",
    "template_metadata.output_regex": "the environment llm_judge or mcqa",
    "answer_format": "NeMo Gym's litmus_agent",
    "use_box_format": "NeMo Gym's litmus_agent",
    "eval_type": "NeMo Gym's ruler2",
    "follow_ups": "NeMo Gym's example_multi_turn_gymnasium",
    "grading_id": "NeMo Gym's imo_gradingbench",
    "judge_prompt_template": "NeMo Gym's inverse_if",
    "max_dist": "NeMo Gym's gui_coordinate",
    "metadata.harness": "NeMo Gym's terminus_judge",
    "problem_type": "NeMo Gym's graphwalks or lc_niah",
    "random_string_to_prepend": "NeMo Gym's mrcr",
    "task_difficulty_qwen3_32b_avg_8": "NeMo Gym's google_search",
}


def server_of(task: Task) -> str:
    """The server that the row's `agent_ref` is of; empty where it says nothing."""
    ref = task.payload.get("agent_ref")
    name = ref.get("name") if isinstance(ref, Mapping) else None
    found = _NAMED.search(name[:200]) if isinstance(name, str) else None
    return found[1] if found else ""


def refuse_others(task: Task, servers: Collection[str], *, but: Collection[str] = ()) -> None:
    """Raise `TaskInvalid` for a row that a server other than `servers` judges.

    `but`: keys of `JUDGED_OTHERWISE` that the environment judges by itself.
    """
    server = server_of(task)
    if server and server not in servers:
        raise TaskInvalid(
            "agent_ref",
            f"names NeMo Gym's server {server}, which judges differently from this environment. "
            f"Run the row on {server} in the environment nemo_gym, or remove the key from the row",
        )
    for key, judge in JUDGED_OTHERWISE.items():
        if key not in but and _has(task.payload, key):
            raise TaskInvalid(
                key,
                f"belongs to rows that {judge} judges. Use {judge}, or remove the key from the row",
            )


def _has(payload: Mapping[str, object], key: str) -> bool:
    outer, _, inner = key.partition(".")
    value = payload.get(outer)
    if inner:
        value = value.get(inner) if isinstance(value, Mapping) else None
    return value not in (None, "", [])
