--- prod: sample data.
return {
  gen = {x = {range = {0.5, 1.5}, ints = {1, 2}}},
  calls = {
    {x = {2, 3, 2, 3, 2}, dims = {1, 3, 5}}, {x = {2, 3, 2, 3, 2}, dims = {2, -2}, keepdim = true},
    {x = {3, 4}}, {x = {3, 4}, dims = {1}}, {x = {3, 4}, dims = {-1}, keepdim = true},
    {x = {2, 3, 4}, dims = {1, 3}},
  },
  empty = {{x = {0, 3}}, {x = {0, 3}, dims = {1}}}, scalar = {{x = {}}}, smooth = true, ulps = 32,
  large = {x = {shape = {317, 317}, range = {0.99, 1.01}}, dims = {1}},
  expect = {{{x = {{1, 2}, {3, 4}}, dims = {1}}, {3, 8}}, {{x = {{1, 2}, {3, 4}}}, 24}},
}
