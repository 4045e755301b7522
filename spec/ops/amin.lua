--- amin: sample data.
return {
  gen = {x = {distinct = true}},
  calls = {
    {x = {2, 3, 2, 3, 2}, dims = {1, 3, 5}}, {x = {2, 3, 2, 3, 2}, dims = {2, -2}, keepdim = true},
    {x = {3, 4}}, {x = {3, 4}, dims = {1}}, {x = {3, 4}, dims = {-1}, keepdim = true},
    {x = {2, 3, 4}, dims = {1, 3}}, {x = {37}},
  },
  empty = {{x = {0, 3}, dims = {2}}}, scalar = {{x = {}}}, large = {x = {317, 317}},
  expect = {{{x = {{1, 7}, {3, 4}}, dims = {1}}, {1, 4}}},
}
