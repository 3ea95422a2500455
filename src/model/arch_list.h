/* One row per architecture: ARCH(symbol of its struct arch). */
ARCH(arch_llama)
ARCH(arch_bitnet)
ARCH(arch_bitnet_b1_58)
ARCH(arch_bitnet_25)
ARCH(arch_qwen2)
ARCH(arch_qwen3)
