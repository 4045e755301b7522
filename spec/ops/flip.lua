--- flip: sample data.
return {
  calls = {{x = {3, 4}, dims = {1}}, {x = {2, 3, 4}, dims = {1, -1}}}, empty = {{x = {0, 4}, dims = {2}}},
  smooth = true, large = {x = {317, 317}, dims = {1, 2}},
  expect = {{{x = {1, 2, 3}, dims = {1}}, {3, 2, 1}}},
}
