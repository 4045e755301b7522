--- layer_norm: sample data.
return {
  gen = {x = {distinct = true}},
  calls = {
    {x = {3, 4}, shape = {4}}, {x = {3, 4}, shape = {4}, weight = {4}, bias = {4}},
    {x = {2, 3, 4}, shape = {3, 4}, weight = {3, 4}},
    {x = {2, 3, 4}, shape = {4}, bias = {4}, eps = 0.1},
  },
  empty = {{x = {0, 4}, shape = {4}, weight = {4}, bias = {4}}}, smooth = true, ulps = 32, tied = false,
  large = {x = {317, 317}, shape = {317}, weight = {317}, bias = {317}},
  expect = {
    {{x = {{1, 3}}, shape = {2}, eps = 0}, {{-1, 1}}},
    {{x = {{1, 3}}, shape = {2}, weight = {2, 2}, bias = {1, 0}, eps = 0}, {{-1, 2}}},
  },
}
