--- flatten: sample data.
return {
  calls = {{x = {3, 4}}, {x = {2, 3, 4}, start_dim = 2}, {x = {2, 3, 4}, start_dim = 1, end_dim = 2}},
  empty = {{x = {0, 4}}}, scalar = {{x = {}}}, smooth = true,
  expect = {{{x = {{1, 2}, {3, 4}}}, {1, 2, 3, 4}}},
}
