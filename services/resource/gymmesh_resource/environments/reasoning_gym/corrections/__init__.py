"""Scores where the library's scorer is not right, by dataset. Pure but for the scorer it is given.

Each correction is called with the library's scorer, the answer and the entry. It returns 1.0 for a
right answer only. What the library gives a wrong answer, as for a good try, stays below that.
"""

from __future__ import annotations

from typing import Final

from gymmesh_resource.environments.reasoning_gym.corrections.expressions import (
    countdown,
    puzzle24,
)
from gymmesh_resource.environments.reasoning_gym.corrections.forms import as_expected, bare
from gymmesh_resource.environments.reasoning_gym.corrections.grids import (
    arc,
    game_of_life,
    kakurasu,
    pool_matrix,
    survo,
)
from gymmesh_resource.environments.reasoning_gym.corrections.moves import (
    quantum_lock,
    rush_hour,
    sokoban,
    tower_of_hanoi,
)
from gymmesh_resource.environments.reasoning_gym.corrections.numbers import (
    advanced_geometry,
    coin_flip,
    finite,
    fraction_simplification,
    gsm_symbolic,
    number_format,
    number_sorting,
    polynomial_equations,
    rounded,
)
from gymmesh_resource.environments.reasoning_gym.corrections.scorer import Correction
from gymmesh_resource.environments.reasoning_gym.corrections.times import time_intervals
from gymmesh_resource.environments.reasoning_gym.corrections.words import (
    codeio,
    game_of_life_halting,
    letter_jumble,
    propositional_logic,
    same_words,
    spell_backward,
    word_sorting,
)

__all__ = ["CORRECTIONS", "as_expected", "bare", "finite"]

CORRECTIONS: Final[dict[str, Correction]] = {
    "advanced_geometry": advanced_geometry,
    "arc_agi": arc,
    "codeio": codeio,
    "coin_flip": coin_flip,
    "countdown": countdown,
    "decimal_arithmetic": rounded,
    "fraction_simplification": fraction_simplification,
    "game_of_life": game_of_life,
    "game_of_life_halting": game_of_life_halting,
    "gsm_symbolic": gsm_symbolic,
    "kakurasu": kakurasu,
    "knights_knaves": same_words,
    "letter_jumble": letter_jumble,
    "number_format": number_format,
    "number_sorting": number_sorting,
    "polynomial_equations": polynomial_equations,
    "pool_matrix": pool_matrix,
    "power_function": rounded,
    "propositional_logic": propositional_logic,
    "puzzle24": puzzle24,
    "quantum_lock": quantum_lock,
    "rearc": arc,
    "rush_hour": rush_hour,
    "sokoban": sokoban,
    "spell_backward": spell_backward,
    "survo": survo,
    "time_intervals": time_intervals,
    "tower_of_hanoi": tower_of_hanoi,
    "word_sorting": word_sorting,
}
