-- What luacheck is told: LuaJIT's globals; busted's in the specs.
std = "luajit"
max_line_length = 128
self = false
ignore = {"581"} -- "not (x <= y)" is no "x > y": NaN
exclude_files = {"build"}
files["spec/**/*_spec.lua"] = {std = "+busted", ignore = {"122/io"}, max_line_length = false} -- a spec may put its own stream in place of io.stderr
files["lua/argand/cli.lua"] = {globals = {"arg"}}
files["spec/ops"] = {max_line_length = false} -- rows of sample data
