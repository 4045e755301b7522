--- mean: sample data.
return {
  calls = {
    {x = {2, 3, 2, 3, 2}, dims = {1, 3, 5}}, {x = {2, 3, 2, 3, 2}, dims = {2, -2}, keepdim = true},
    {x = {3, 4}}, {x = {3, 4}, dims = {1}}, {x = {3, 4}, dims = {-1}, keepdim = true},
    {x = {2, 3, 4}, dims = {1, 3}},
  },
  empty = {{x = {0, 3}}, {x = {0, 3}, dims = {2}}}, scalar = {{x = {}}}, smooth = true,
  large = {x = {317, 317}},
  expect = {{{x = {{1, 2}, {3, 6}}, dims = {1}}, {2, 4}}, {{x = {{1, 2}, {3, 6}}}, 3}},
}
