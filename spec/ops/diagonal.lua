--- diagonal: sample data.
return {
  calls = {{x = {3, 4}}, {x = {4, 3}, offset = -1}, {x = {2, 3, 4}, offset = 1, dim1 = 2, dim2 = 3}},
  empty = {{x = {0, 4}}, {x = {2, 2}, offset = 2}}, smooth = true,
  expect = {{{x = {{1, 2}, {3, 4}}}, {1, 4}}, {{x = {{1, 2}, {3, 4}}, offset = 1}, {2}}},
}
