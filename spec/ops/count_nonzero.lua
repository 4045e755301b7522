--- count_nonzero: sample data.
return {
  gen = {x = {ints = {0, 1}}}, calls = {{x = {3, 4}}, {x = {3, 4}, dims = {1}}, {x = {2, 3, 4}, dims = {1, 3}}},
  empty = {{x = {0, 3}}, {x = {0, 3}, dims = {1}}}, scalar = {{x = {}}}, large = {x = {317, 317}},
  expect = {{{x = {{0, 7}, {1, 4}}, dims = {1}}, {1, 2}}},
}
