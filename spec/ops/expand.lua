--- expand: sample data.
return {
  calls = {{x = {3, 1}, shape = {3, 4}}, {x = {4}, shape = {2, 3, 4}}, {x = {3, 1}, shape = {-1, 2}}},
  empty = {{x = {1, 4}, shape = {0, 4}}, {x = {0, 1}, shape = {0, 3}}},
  scalar = {{x = {}, shape = {2, 2}}}, smooth = true,
  expect = {{{x = {{1}, {2}}, shape = {2, 2}}, {{1, 1}, {2, 2}}}},
}
