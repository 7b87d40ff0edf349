__kernel void cede_spin(__global uint *state, uint iterations)
{
    size_t i = get_global_id(0);
    uint x = state[i];
    for (uint n = 0; n < iterations; n++)
        x = x * 1664525U + 1013904223U;
    state[i] = x;
}
