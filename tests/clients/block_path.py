# SPDX-License-Identifier: Apache-2.0
"""Where llm-d and vLLM's fs tier keep a block: `<model>_<12 hex>_r<rank>/<hhh>/<hh>_g<group>/<hash>.bin`, four levels
below the root, with the run's settings in `<model>_<12 hex>/config.json` (278 bytes)."""

import hashlib
import json
import os

SETTINGS = {
    "block_size_in_bytes": 4497408, "blocks_per_file": 8, "gpu_block_tokens": 16, "kv_cache_groups": 1,
    "kv_dtype": "bfloat16", "mesh": {"dcp": 1, "pcp": 1, "pp": 1, "tp": 1},
    "model": "meta-llama/Llama-3.1-8B-Instruct", "python_hash_seed": 0,
}


class BlockPath:
    def __init__(self, root, rank=0, group=0):
        digest = hashlib.sha256(json.dumps(SETTINGS, sort_keys=True).encode()).hexdigest()
        self.base = os.path.join(root, f"Llama-3.1-8B-Instruct_{digest[:12]}")
        self.config = os.path.join(self.base, "config.json")
        self._rank, self._group = rank, group

    def of(self, key):
        return os.path.join(f"{self.base}_r{self._rank}", key[:3], f"{key[3:5]}_g{self._group}",
                            f"{key}.bin")

    def write_config(self):
        """As both engines do at the start, unless it is there."""
        os.makedirs(self.base, exist_ok=True)
        if not os.path.exists(self.config):
            with open(self.config, "w", encoding="utf-8") as file:
                file.write(json.dumps(SETTINGS, indent=2, sort_keys=True))
