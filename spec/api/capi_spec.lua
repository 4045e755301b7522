--- capi: argand.h: every function runs as it says, in C11; the header is C++ as well; the library exports what is declared and nothing else.
local ag = require "argand"

local root = debug.getinfo(1, "S").source:match "^@(.*)spec/api/[^/]*$"
local header = root .. "engine/include/argand.h"
local build = package.cpath:match "([^;]*)/lib/%?%.so"

local function read(path)
  local file = assert(io.open(path))
  local text = file:read "*a"
  file:close()
  return text
end

-- Runs a shell command: true or false, and what it wrote.
local function run(command)
  local pipe = io.popen(command .. " 2>&1; echo $?")
  local text = pipe:read "*a"
  pipe:close()
  local output, code = text:match "^(.-)(%d+)\n$"
  return code == "0", output
end

local function has(program) return (run("command -v " .. program)) end

local function declared()
  local names, list = {}, {}
  for line in (read(header):gsub("/%*.-%*/", "") .. "\n"):gmatch "AG_API%s+(.-);" do
    local name = line:match "(ag_[%w_]+)%s*%("
    if name and not names[name] then
      names[name] = true
      list[#list + 1] = name
    end
  end
  table.sort(list)
  return list
end

describe("argand.h", function()
  it("does what it says", function()
    if not (has "cc" and build) then return pending "needs cc and the build tree" end
    local sanitizers = ag.info().build:match "sanitizers: ([%w+]+)"
    local flags = sanitizers and sanitizers ~= "none" and "-fsanitize=" .. sanitizers:gsub("%+", ",") or ""
    local program, file = os.tmpname(), os.tmpname()
    local ok, output = run(("cc -std=c11 -Wall -Wextra -Werror %s -I%sengine/include %sspec/api/capi_test.c -o %s -L%s -largand -lm -Wl,-rpath,%s"):format(
      flags, root, root, program, build, build))
    if ok then ok, output = run(program .. " " .. file) end
    os.remove(program)
    os.remove(file)
    assert(ok, output)
  end)

  it("is used as a whole by that program", function()
    local program = read(root .. "spec/api/capi_test.c")
    for _, name in ipairs(declared()) do assert(program:find("%f[%w_]" .. name .. "%f[^%w_]"), name .. " is not called") end
  end)

  it("is what the library exports, no more and no less", function()
    if not (has "nm" and build) then return pending "needs nm and the build tree" end
    local ok, output = run(("nm -D --defined-only %s/libargand.so"):format(build))
    assert(ok, output)
    local exported = {}
    for name in output:gmatch " [TDBRWV] ([%w_]+)" do
      if not name:find "^__" then exported[#exported + 1] = name end -- a sanitizer's own
    end
    table.sort(exported)
    assert.same(declared(), exported)
  end)

  it("compiles as C++, and as C with nothing before it", function()
    if not (has "c++" and has "cc") then return pending "needs c++ and cc" end
    local ok, output = run("c++ -std=c++11 -Wall -Wextra -Wpedantic -fsyntax-only -x c++ " .. header)
    assert(ok, output)
    ok, output = run("cc -std=c11 -Wall -Wextra -Wpedantic -Wstrict-prototypes -fsyntax-only -x c " .. header)
    assert(ok, output)
  end)
end)
