--- transpose: sample data.
return {
  calls = {{x = {3, 4}}, {x = {2, 3, 4}, dim0 = 1, dim1 = 3}}, empty = {{x = {0, 4}}}, smooth = true,
  expect = {{{x = {{1, 2}, {3, 4}}}, {{1, 3}, {2, 4}}}},
}
