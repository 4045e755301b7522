--- masked_fill: sample data.
return {
  calls = {
    {x = {4, 3}, mask = {4, 3}, value = 1}, {x = {4, 3}, mask = {3}, value = 1},
    {x = {2, 3, 4}, mask = {3, 1}, value = 0},
  },
  empty = {{x = {0, 3}, mask = {3}, value = 1}}, scalar = {{x = {}, mask = {}, value = 1}}, smooth = true,
  large = {x = {317, 317}, mask = {317}, value = 3},
  expect = {{{x = {1, 2}, mask = {true, false}, value = 9}, {9, 2}}},
}
