--- std: sample data.
return {
  gen = {x = {distinct = true}},
  calls = {
    {x = {3, 4}}, {x = {3, 4}, dims = {1}}, {x = {3, 4}, dims = {-1}, keepdim = true},
    {x = {2, 3, 4}, dims = {1, 3}, correction = 0},
  },
  empty = {{x = {0, 3}, dims = {2}}, {x = {0, 3}}}, smooth = true, large = {x = {317, 317}}, ulps = 16,
  tied = false,
  expect = {{{x = {1, 2, 3, 4}, correction = 0}, 1.118033988749895}},
}
