--- movedim: sample data.
return {
  calls = {{x = {3, 4}, source = 1, destination = 2}, {x = {2, 3, 4}, source = 3, destination = 1}},
  empty = {{x = {0, 4}, source = 1, destination = -1}}, smooth = true,
  expect = {{{x = {{1, 2}, {3, 4}}, source = 1, destination = 2}, {{1, 3}, {2, 4}}}},
}
