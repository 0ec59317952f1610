# Load the debug and release variables
file(GLOB DATA_FILES "${CMAKE_CURRENT_LIST_DIR}/runnel-*-data.cmake")

foreach(f ${DATA_FILES})
    include(${f})
endforeach()

# Create the targets for all the components
foreach(_COMPONENT ${runnel_COMPONENT_NAMES} )
    if(NOT TARGET ${_COMPONENT})
        add_library(${_COMPONENT} INTERFACE IMPORTED)
        message(${runnel_MESSAGE_MODE} "Conan: Component target declared '${_COMPONENT}'")
    endif()
endforeach()

if(NOT TARGET runnel::runnel)
    add_library(runnel::runnel INTERFACE IMPORTED)
    message(${runnel_MESSAGE_MODE} "Conan: Target declared 'runnel::runnel'")
endif()
# Load the debug and release library finders
file(GLOB CONFIG_FILES "${CMAKE_CURRENT_LIST_DIR}/runnel-Target-*.cmake")

foreach(f ${CONFIG_FILES})
    include(${f})
endforeach()