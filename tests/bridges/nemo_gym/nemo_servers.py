"""Serves NeMo Gym's own servers, each on a port of its own; run by a Python that has nemo-gym.

    nemo_servers.py CONFIG WORDS

CONFIG is a NeMo Gym configuration as JSON. Its parser reads it, and each instance of it that has an
`entrypoint` is served as `gym env start` would, but all in this one process. WORDS is the file of
words that wordle knows, which the wheel has not. Prints `ready`.
"""

# What it imports lies in another environment.
# mypy: disable-error-code="import-not-found"

import asyncio
import importlib
import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import uvicorn
from nemo_gym.global_config import GlobalConfigDictParserConfig, get_global_config_dict
from nemo_gym.server_utils import ServerClient, SimpleServer
from omegaconf import DictConfig, OmegaConf


def application(name: str, kind: str, folder: str, config: Mapping[str, Any], client: Any) -> Any:
    """The application of one server, with what NeMo Gym's own start puts around it."""
    module: Any = importlib.import_module(f"{kind}.{folder}.app")
    if folder == "wordle":
        module.GUESSES_PATH = Path(sys.argv[2])
    found = [
        one
        for one in vars(module).values()
        if inspect.isclass(one)
        and issubclass(one, SimpleServer)
        and one.__module__ == module.__name__
        and not inspect.isabstract(one)
    ]
    server_class: Any = found[-1]
    made = server_class.model_fields["config"].annotation.model_validate({**config, "name": name})
    server = server_class(config=made, server_client=client)
    app = server.setup_webserver()
    if getattr(made, "expose_tools_over_mcp", False):
        from nemo_gym.mcp_auto_exposure import maybe_auto_expose

        maybe_auto_expose(server, app)
    server.setup_exception_middleware(app)
    server.setup_cancellation_middleware(app)
    return app


async def main() -> None:
    """Serve until terminated."""
    parsed = get_global_config_dict(
        GlobalConfigDictParserConfig(
            initial_global_config_dict=DictConfig(json.loads(sys.argv[1])),
            skip_load_from_cli=True,
            skip_load_from_dotenv=True,
        )
    )
    client = ServerClient(
        head_server_config=ServerClient.load_head_server_config(), global_config_dict=parsed
    )
    servers = []
    for name, instance in OmegaConf.to_container(parsed, resolve=True).items():
        if not isinstance(instance, dict):
            continue
        for kind, folders in instance.items():
            for folder, config in folders.items() if isinstance(folders, dict) else ():
                if isinstance(config, dict) and "entrypoint" in config:
                    app = application(name, kind, folder, config, client)
                    settings = uvicorn.Config(
                        app, host=config["host"], port=config["port"], log_level="warning"
                    )
                    servers.append(uvicorn.Server(settings))
    running = [asyncio.create_task(server.serve()) for server in servers]
    while not all(server.started for server in servers):
        await asyncio.sleep(0.05)
        for task in running:
            if task.done():
                task.result()
    print("ready", flush=True)
    await asyncio.gather(*running)


if __name__ == "__main__":
    asyncio.run(main())
