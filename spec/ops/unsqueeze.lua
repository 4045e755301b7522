--- unsqueeze: sample data.
return {
  calls = {{x = {3, 4}, dim = 1}, {x = {3, 4}, dim = -1}, {x = {3, 4}, dim = 2}},
  empty = {{x = {0, 4}, dim = 1}}, scalar = {{x = {}, dim = 1}}, smooth = true,
  expect = {{{x = {1, 2}, dim = 2}, {{1}, {2}}}},
}
