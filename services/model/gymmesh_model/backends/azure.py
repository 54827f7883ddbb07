"""Azure OpenAI through the same package: another address and other credentials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from gymmesh_model.backends.openai import OpenAIBackend
from gymmesh_model.backends.responses import ResponsesOptions

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class AzureOptions(ResponsesOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `options` of an `azure` model, whose deployment is named by `model`.

    Those of `responses`, and:

    api_version: of Azure's API, such as `2025-04-01-preview`.
    auth: what `api_key` is: the resource's `key`, or a Microsoft Entra `token`.
    """

    api_version: str = "2025-04-01-preview"
    auth: Literal["key", "token"] = "key"


class AzureBackend(OpenAIBackend):
    """`POST {url}/openai/responses?api-version=…`."""

    kind = "azure"
    needs_url = True
    needs_model = "the name of the deployment"
    options_type = AzureOptions
    missing = "needs 'api_key', or the key in the environment variable AZURE_OPENAI_API_KEY"

    def _make_client(self) -> AsyncOpenAI:
        from openai import AsyncAzureOpenAI

        key = self._config.api_key or None
        return AsyncAzureOpenAI(
            azure_endpoint=self._config.url or "",
            api_version=self._options.api_version,
            api_key=key if self._options.auth == "key" else None,
            azure_ad_token=key if self._options.auth == "token" else None,
            **self._common(),
        )
