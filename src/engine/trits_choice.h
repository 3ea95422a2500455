/* How a run came to one of the two packings of ternary weights; what is told of it. */
#ifndef TRINE_ENGINE_TRITS_CHOICE_H
#define TRINE_ENGINE_TRITS_CHOICE_H

/* DEFAULT: no matrix can have either (none is ternary, or all hold +2), the instruction set has no fast trits5,
 * or nothing was timed: the type of the file is not ternary, or it has less than 256 MiB.
 * TIMING_LATER: trits5 in a plan alone, of which a timing at load may make trits4. LACK_OF_MEMORY: trits5, as the
 * timing got none. SIZE: trits5, as there is no memory for trits4, which was faster. */
#define TRITS_REASON_LIST(X)                                                                       \
    X(DEFAULT, "default")                                                                          \
    X(OPTION, "option")                                                                            \
    X(TIMING, "timing")                                                                            \
    X(TIMING_LATER, "timing-at-load")                                                              \
    X(LACK_OF_MEMORY, "no-memory")                                                                 \
    X(SIZE, "size")
#define TRITS_REASON_ENUM(name, text) TRITS_BY_##name,
enum trits_reason { TRITS_REASON_LIST(TRITS_REASON_ENUM) N_TRITS_REASONS };
#undef TRITS_REASON_ENUM
const char *trits_reason_name(enum trits_reason reason);

struct trits_choice {
    enum trits_reason reason;
    double weights_s[2]; /* that all threads multiplied as trits4, trits5; 0: not timed */
};

#endif
