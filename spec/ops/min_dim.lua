--- min_dim: sample data.
return {
  gen = {x = {distinct = true}},
  calls = {{x = {3, 4}, dim = 1}, {x = {3, 4}, dim = -1, keepdim = true}, {x = {2, 3, 4}, dim = 2}},
  empty = {{x = {0, 3}, dim = 2}}, scalar = {{x = {}, dim = 1}}, large = {x = {317, 317}, dim = 1},
  tied = false,
  expect = {{{x = {{1, 7}, {3, 4}}, dim = 1}, {1, 4}, {1, 2}}},
}
