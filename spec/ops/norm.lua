--- norm: sample data.
return {
  gen = {x = {range = {0.3, 2}, distinct = true}},
  calls = {
    {x = {3, 4}}, {x = {3, 4}, dims = {1}}, {x = {3, 4}, p = 1, dims = {-1}, keepdim = true},
    {x = {2, 3, 4}, p = 3, dims = {1, 3}},
    {x = {3, 4}, p = 1 / 0}, {x = {3, 4}, p = 0}, {x = {3, 4}, p = 0.5, dims = {2}},
  },
  empty = {{x = {0, 3}}, {x = {0, 3}, dims = {1}}}, scalar = {{x = {}}}, large = {x = {317, 317}}, ulps = 32,
  tied = false,
  special = {{x = {3, 4}, p = 1, dims = {2}}},
  expect = {
    {{x = {3, -4}}, 5}, {{x = {3, -4}, p = 1}, 7}, {{x = {3, -4}, p = 1 / 0}, 4}, {{x = {3, 0}, p = 0}, 1},
    {{x = {0 / 0, 0, -2}, p = 0}, 2},
  },
}
