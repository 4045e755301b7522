--- nonzero: sample data.
return {
  gen = {x = {ints = {0, 2}}}, calls = {{x = {4, 3}}, {x = {2, 3, 4}}, {x = {37}}}, empty = {{x = {0, 3}}},
  scalar = {{x = {}}},
  large = {x = {317, 317}}, expect = {{{x = {{0, 5}, {7, 0}}}, {{1, 2}, {2, 1}}}},
}
