--- view: sample data.
return {
  calls = {{x = {3, 4}, shape = {2, 6}}, {x = {3, 4}, shape = {-1}}}, empty = {{x = {0, 4}, shape = {2, 0}}},
  scalar = {{x = {}, shape = {1, 1}}, {x = {1, 1}, shape = {}}}, smooth = true, layouts = false,
  expect = {{{x = {1, 2, 3, 4}, shape = {2, 2}}, {{1, 2}, {3, 4}}}},
}
