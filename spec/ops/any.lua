--- any: sample data.
return {
  gen = {x = {ints = {0, 1}}},
  calls = {
    {x = {2, 3, 2, 3, 2}, dims = {1, 3, 5}}, {x = {2, 3, 2, 3, 2}, dims = {2, -2}, keepdim = true},
    {x = {3, 4}}, {x = {3, 4}, dims = {1}}, {x = {3, 4}, dims = {-1}, keepdim = true},
    {x = {2, 3, 4}, dims = {1, 3}},
  },
  empty = {{x = {0, 3}}, {x = {0, 3}, dims = {1}}}, scalar = {{x = {}}}, large = {x = {317, 317}, dims = {1}},
  expect = {{{x = {{0, 7}, {0, 4}}, dims = {1}}, {false, true}}},
}
