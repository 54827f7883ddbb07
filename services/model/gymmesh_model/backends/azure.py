"""Azure OpenAI through the same package: another address and other credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from gymmesh_model.backends.openai import OpenAIBackend
from gymmesh_model.config import ModelConfig
from gymmesh_model.errors import options_of

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class AzureOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of an `azure` model, whose deployment is named by `model`.

    api_version: of Azure's API, such as `2025-04-01-preview`.
    auth: what `api_key` is: the resource's `key`, or a Microsoft Entra `token`.
    keep_aborted: as for `openai`.
    """

    api_version: str = "2025-04-01-preview"
    auth: Literal["key", "token"] = "key"
    keep_aborted: bool = False


class AzureBackend(OpenAIBackend):
    """`POST {url}/openai/responses?api-version=…`."""

    backend = "azure"

    def _read_options(self, config: ModelConfig) -> bool:
        self._azure: AzureOptions = options_of(self._name, config.options, AzureOptions)
        return self._azure.keep_aborted

    def _make_client(self) -> AsyncOpenAI:
        from openai import AsyncAzureOpenAI

        key = self._config.api_key or None
        return AsyncAzureOpenAI(
            azure_endpoint=self._config.url or "",
            api_version=self._azure.api_version,
            api_key=key if self._azure.auth == "key" else None,
            azure_ad_token=key if self._azure.auth == "token" else None,
            **self._common(),
        )

    def _missing(self) -> str:
        return "needs 'api_key', or the key in the environment variable AZURE_OPENAI_API_KEY"
