/* One row per architecture: ARCH(symbol of its struct arch). */
ARCH(arch_llama)
